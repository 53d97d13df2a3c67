// Package runtimeapi stands in for Lambda around the process of a function: it
// starts the process as Lambda would and is the runtime API that the process asks
// for work and answers to.
// (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html)
//
// It is as strict as the real one: what that would refuse is refused, with the same
// status, and kept in Refused. One process has one invocation at a time. An answer
// is handed on while it arrives, chunk by chunk.
//
// Left out: extensions, snapshots, and the end of a process at its deadline, which
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

	mu        sync.Mutex
	state     state
	current   *Invocation
	count     int
	refused   []string
	initError *FunctionError
}

// New makes the runtime API of a process that is about to start.
func New() *API {
	a := &API{routes: http.NewServeMux(), events: make(chan *Invocation, 100), ready: make(chan struct{}), state: starting}
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
	a.mu.Lock()
	from := a.state
	if from == starting || from == answered {
		a.state = waiting
	}
	last := a.current
	a.mu.Unlock()
	switch from {
	case starting:
		close(a.ready)
	case answered:
		close(last.done)
	default:
		a.refuse(w, http.StatusForbidden, "InvalidStateTransition", "it asks for work while it is "+string(from))
		return
	}
	select {
	case i := <-a.events:
		i.deadline = time.Now().Add(i.timeout)
		a.mu.Lock()
		a.state, a.current = running, i
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

// begin moves from running to answering, if the request is an answer to the current
// invocation.
func (a *API) begin(w http.ResponseWriter, r *http.Request) *Invocation {
	a.mu.Lock()
	from, i := a.state, a.current
	known := i != nil && i.ID == r.PathValue("id")
	if known && from == running {
		a.state = answering
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

func (a *API) end() {
	a.mu.Lock()
	a.state = answered
	a.mu.Unlock()
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
	a.end()
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
	a.end()
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
		a.refuse(w, http.StatusForbidden, "InvalidStateTransition", "it says that it cannot start while it is "+string(from))
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
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"errorType": kind, "errorMessage": why})
}
