// Package runtimeapi stands in for Lambda around the process of a function: it
// starts the process as Lambda would and is the runtime API that the process asks
// for work and answers to.
// (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html)
//
// It is as strict as the real one: what that would refuse is refused, with the same
// status, and kept in Refused. A process has one invocation at a time, or as many as
// Lambda Managed Instances give it: then it asks for as many at once, and none of its
// questions says anything of another. An answer is handed on while it arrives, chunk by
// chunk. A process may register itself as an extension without events, which has Lambda
// send it SIGTERM before its end.
//
// Left out: all else of extensions, snapshots, and the end of a process at its deadline, which
// its test should see rather than Lambda cover up.
package runtimeapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	prefix     = "/2018-06-01/runtime/"
	maxPayload = 6 << 20 // of an event, and of an answer that is not streamed; bytes
	// Streamed is the content type of an answer that begins with its HTTP status and
	// headers and is passed on as it comes.
	Streamed = "application/vnd.awslambda.http-integration-response"

	functionARN = "arn:aws:lambda:us-east-1:123456789012:function:local"
	modeHeader  = "Lambda-Runtime-Function-Response-Mode"
	errorType   = "Lambda-Runtime-Function-Error-Type"
	errorBody   = "Lambda-Runtime-Function-Error-Body"
)

// state is where the process stands, as the runtime API sees it.
type state string

const (
	starting  state = "starting"  // it has not asked for work yet
	waiting   state = "waiting"   // it has
	running   state = "running"   // it has some
	answering state = "answering" // its answer is on the way
	answered  state = "answered"  // and may ask again
	failed    state = "failed"    // it reported that it cannot start
)

// API is the runtime API of one process. It is safe for concurrent use.
type API struct {
	routes *http.ServeMux
	events chan *Invocation
	ready  chan struct{}

	most       int           // invocations at a time
	registered chan struct{} // closed when the process has registered an extension

	mu        sync.Mutex
	state     state       // of the process; with many invocations: starting, waiting or failed
	current   *Invocation // with one: the last
	open      map[string]*Invocation
	asking    int // with many: how many questions wait
	count     int
	refused   []string
	initError *FunctionError
}

// New makes the runtime API of a process that is about to start.
func New() *API { return NewMany(1) }

// NewMany is New for a process that has up to most invocations at a time.
func NewMany(most int) *API {
	a := &API{routes: http.NewServeMux(), events: make(chan *Invocation, 1000), ready: make(chan struct{}), registered: make(chan struct{}), state: starting,
		most: most, open: map[string]*Invocation{}}
	a.routes.HandleFunc("POST /2020-01-01/extension/register", a.register)
	a.routes.HandleFunc("GET /2020-01-01/extension/event/next", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	a.routes.HandleFunc("GET "+prefix+"invocation/next", a.next)
	a.routes.HandleFunc("POST "+prefix+"invocation/{id}/response", a.response)
	a.routes.HandleFunc("POST "+prefix+"invocation/{id}/error", a.failure)
	a.routes.HandleFunc("POST "+prefix+"init/error", a.initFailure)
	a.routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, http.StatusNotFound, "NotFound", "there is no "+r.Method+" "+r.URL.Path)
	})
	return a
}

// ServeHTTP serves the process.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.routes.ServeHTTP(w, r) }

// Ready is closed when the process first asks for work: its start is over.
func (a *API) Ready() <-chan struct{} { return a.ready }

// Registered is closed when the process has registered an extension: SIGTERM comes before
// its end.
func (a *API) Registered() <-chan struct{} { return a.registered }

// register takes the registration of an internal extension, which has no events.
func (a *API) register(w http.ResponseWriter, r *http.Request) {
	var body struct{ Events []string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Events) > 0 || r.Header.Get("Lambda-Extension-Name") == "" {
		a.refuse(w, http.StatusForbidden, "Extension.RegistrationError", "it registers an extension with events or without a name")
		return
	}
	close(a.registered)
	w.Header().Set("Lambda-Extension-Identifier", "00000000-0000-4000-8000-000000000001")
	_, _ = io.WriteString(w, `{"functionName":"local","functionVersion":"$LATEST","handler":"bootstrap"}`)
}

// Refused says what had to be refused so far. A good process gives no cause.
func (a *API) Refused() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.refused)
}

// InitError is what the process reported before it ever asked for work; nil: nothing.
func (a *API) InitError() *FunctionError {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.initError
}

// Invocation is one event for the process.
type Invocation struct {
	ID      string
	event   []byte
	timeout time.Duration
	answer  chan *Answer
	done    chan struct{}

	deadline time.Time // set when the process takes it
	state    state     // running, answering or answered
}

// Invoke queues an event. The timeout begins when the process takes it.
func (a *API) Invoke(event []byte, timeout time.Duration) *Invocation {
	if len(event) > maxPayload {
		panic("runtimeapi: the event is larger than Lambda takes")
	}
	a.mu.Lock()
	a.count++
	i := &Invocation{
		ID:    fmt.Sprintf("%08d-0000-4000-8000-000000000000", a.count),
		event: event, timeout: timeout, answer: make(chan *Answer, 1), done: make(chan struct{}),
	}
	a.mu.Unlock()
	a.events <- i
	return i
}

// Answer waits until the process begins to answer.
func (i *Invocation) Answer(ctx context.Context) (*Answer, error) {
	select {
	case answer := <-i.answer:
		return answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Done is closed when the process, having answered, asks for more: then it may be
// frozen.
func (i *Invocation) Done() <-chan struct{} { return i.done }

// Answer is what the process answers to an invocation, while it arrives.
type Answer struct {
	ContentType string
	Mode        string    // of Lambda-Runtime-Function-Response-Mode; aws-lambda-go sets none
	Deadline    time.Time // of the invocation
	// Body must be read to its end: the process waits for its reader. Closing it cuts
	// the connection as soon as more arrives, as Lambda does when it gives a process up.
	Body io.ReadCloser
	// Error is set if the process reported that the invocation failed. Of an answer
	// that broke on its way it is set when Body has ended.
	Error *FunctionError
}

// FunctionError is a failure as a process reports it.
type FunctionError struct {
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

func (e *FunctionError) Error() string { return e.Type + ": " + e.Message }

// next hands out an invocation. By asking, the process says that it is done with the
// last one.
func (a *API) next(w http.ResponseWriter, r *http.Request) {
	if !a.ask(w) {
		return
	}
	select {
	case i := <-a.events:
		i.deadline = time.Now().Add(i.timeout)
		a.mu.Lock()
		a.asking--
		i.state, a.current, a.open[i.ID] = running, i, i
		a.mu.Unlock()
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", i.ID)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(i.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", functionARN)
		h.Set("Lambda-Runtime-Trace-Id", fmt.Sprintf("Root=1-%08x-000000000000000000000000;Sampled=0", i.deadline.Unix()))
		_, _ = w.Write(i.event)
	case <-r.Context().Done(): // the process has ended
	}
}

// ask notes that the process asks for work, if it may.
func (a *API) ask(w http.ResponseWriter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.current
	switch {
	case a.asking+len(a.open) >= a.most, a.state == failed:
		is := a.state
		if last != nil && a.asking == 0 {
			is = last.state
		}
		a.refused = append(a.refused, "it asks for work while it is "+string(is))
		writeRefusal(w, http.StatusForbidden, "InvalidStateTransition", a.refused[len(a.refused)-1])
		return false
	case a.state == starting:
		a.state = waiting
		close(a.ready)
	case a.most == 1:
		close(last.done)
	}
	a.asking++
	return true
}

// begin moves from running to answering, if the request is an answer to an invocation that
// the process has.
func (a *API) begin(w http.ResponseWriter, r *http.Request) *Invocation {
	a.mu.Lock()
	i, known := a.open[r.PathValue("id")]
	if last := a.current; a.most == 1 && last != nil && last.ID == r.PathValue("id") {
		i, known = last, true
	}
	var from state
	if known {
		from = i.state
		if from == running {
			i.state = answering
		}
	}
	a.mu.Unlock()
	switch {
	case !known:
		a.refuse(w, http.StatusBadRequest, "InvalidRequestID", "it answers an invocation that it does not have")
		return nil
	case from != running:
		a.refuse(w, http.StatusForbidden, "InvalidStateTransition", "it answers while it is "+string(from))
		return nil
	}
	return i
}

// end notes that an answer is here. Of one invocation at a time the next question tells
// that the process is done with it.
func (a *API) end(i *Invocation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i.state = answered
	delete(a.open, i.ID)
	if a.most > 1 {
		close(i.done)
	}
}

// response passes an answer on. Trailers say whether it broke on its way.
func (a *API) response(w http.ResponseWriter, r *http.Request) {
	i := a.begin(w, r)
	if i == nil {
		return
	}
	if mode := r.Header.Get(modeHeader); mode != "" && mode != "streaming" {
		a.refuse(w, http.StatusBadRequest, "InvalidFunctionResponseMode", "the response mode is "+mode)
		return
	}
	read, write := io.Pipe()
	answer := &Answer{ContentType: r.Header.Get("Content-Type"), Mode: r.Header.Get(modeHeader), Deadline: i.deadline, Body: read}
	i.answer <- answer

	var body io.Reader = r.Body
	if answer.ContentType != Streamed {
		body = io.LimitReader(r.Body, maxPayload+1)
	}
	size, err := io.Copy(write, body)
	switch {
	case errors.Is(err, io.ErrClosedPipe): // its reader cut it
		panic(http.ErrAbortHandler)
	case err != nil:
		write.CloseWithError(err)
		a.refuse(w, http.StatusBadRequest, "TruncatedHTTPRequest", "its answer is cut short")
		return
	case answer.ContentType != Streamed && size > maxPayload:
		write.CloseWithError(errors.New("the answer is larger than Lambda takes"))
		a.refuse(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "its answer is larger than Lambda takes")
		return
	}
	if r.Trailer.Get(errorType) != "" {
		if answer.Error, err = readTrailer(r.Trailer); err != nil {
			write.CloseWithError(err)
			a.refuse(w, http.StatusBadRequest, "InvalidTrailer", "its error trailer cannot be read: "+err.Error())
			return
		}
	}
	_ = write.Close() // before the process is told that its answer has arrived
	a.end(i)
	a.accept(w)
}

// readTrailer reads the error of an answer that broke on its way.
func readTrailer(trailer http.Header) (*FunctionError, error) {
	body, err := base64.StdEncoding.DecodeString(trailer.Get(errorBody))
	if err != nil {
		return nil, err
	}
	e, err := readError(body)
	if err == nil && e.Type != trailer.Get(errorType) {
		err = errors.New("its two types differ")
	}
	return e, err
}

func readError(body []byte) (*FunctionError, error) {
	e := &FunctionError{}
	if err := json.Unmarshal(body, e); err != nil {
		return nil, err
	}
	if e.Type == "" {
		return nil, errors.New("it has no errorType")
	}
	return e, nil
}

// failure takes the report of an invocation that failed.
func (a *API) failure(w http.ResponseWriter, r *http.Request) {
	i := a.begin(w, r)
	if i == nil {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
	var e *FunctionError
	if err == nil {
		e, err = readError(body)
	}
	if err != nil {
		a.refuse(w, http.StatusBadRequest, "InvalidErrorBody", "its error cannot be read: "+err.Error())
		return
	}
	i.answer <- &Answer{ContentType: r.Header.Get("Content-Type"), Deadline: i.deadline, Body: io.NopCloser(bytes.NewReader(body)), Error: e}
	a.end(i)
	a.accept(w)
}

// initFailure takes the report of a process that cannot start.
func (a *API) initFailure(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
	var e *FunctionError
	if err == nil {
		e, err = readError(body)
	}
	a.mu.Lock()
	from := a.state
	if from == starting && err == nil {
		a.state, a.initError = failed, e
	}
	a.mu.Unlock()
	switch {
	case err != nil:
		a.refuse(w, http.StatusBadRequest, "InvalidErrorBody", "its error cannot be read: "+err.Error())
	case from != starting:
		a.refuse(w, http.StatusForbidden, "InvalidStateTransition", "it says that it cannot start, but it has asked for work")
	default:
		a.accept(w)
	}
}

func (a *API) accept(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"status":"OK"}`)
}

func (a *API) refuse(w http.ResponseWriter, status int, kind, why string) {
	a.mu.Lock()
	a.refused = append(a.refused, why)
	a.mu.Unlock()
	writeRefusal(w, status, kind, why)
}

func writeRefusal(w http.ResponseWriter, status int, kind, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"errorType": kind, "errorMessage": why})
}
