package provider

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Bounds on what a provider may send, in decoded bytes.
const (
	maxJSON     = 8 << 20  // a buffered answer
	maxStream   = 64 << 20 // a whole stream
	maxEvent    = 1 << 20  // one line or one server-sent event of a stream
	maxLeftover = 64 << 10 // an error body, or what follows the end of a stream
)

// briefly is how long the rest of a body is waited for when all that matters is
// known. It is read at all because only a finished connection is used again.
const briefly = 500 * time.Millisecond

// api is a provider that takes JSON at one URL and answers in JSON or, to a stream,
// in server-sent events.
type api struct {
	endpoint    string
	header      http.Header // sent with every request
	client      http.Client
	billsErrors bool // as in OpenAIConfig
	// How answers are read: a buffered one, of which a failure leaves what was told
	// before it, and a stream's events.
	whole  func(body []byte) (Part, error)
	events func(*eventReader) events
}

// newAPI checks the URL, under which path is, before its query if it has one. Its errors
// do not quote what may hold a secret where it should not.
func newAPI(baseURL, path string, client *http.Client, billsErrors bool) (api, error) {
	u, err := parseBaseURL(baseURL)
	if err != nil {
		return api{}, err
	}
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", "tokenfuse")
	return api{endpoint: u.JoinPath(path).String(), header: header, client: withoutRedirects(client), billsErrors: billsErrors}, nil
}

func parseBaseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, errors.New("base URL is not an absolute http or https URL")
	}
	if u.User != nil || u.Fragment != "" {
		return nil, errors.New("base URL has a user or a fragment")
	}
	return u, nil
}

// checkKey refuses a key that cannot be a header's value.
func checkKey(key string) error {
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return errors.New("API key has a character that is not printable ASCII")
		}
	}
	return nil
}

// withoutRedirects copies client, or makes one if it is nil. A redirect may send
// the request, and with it the bill, a second time.
func withoutRedirects(client *http.Client) http.Client {
	if client == nil {
		client = newHTTPClient()
	}
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// newHTTPClient makes a client that speaks HTTP/1.1, so that no layer below ever
// sends a request again, and has no time limit but the context's once connected. No
// variable of the environment puts a proxy between it and the provider.
func newHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        30 * time.Second, // less than servers', so that few calls meet a dead one
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // it would hold tokens back
		// Who comes back after a pause resumes its session: half the work, and a trip less.
		TLSClientConfig: &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(0)},
		Protocols:       protocols,
	}}
}

// call sends one request with content as JSON; ctx bounds the whole
// answer, to its last part. A call that never got a connection is Unreachable,
// whatever ended it: nothing was billed. In every other case that leaves doubt the
// request counts as sent.
func (a *api) call(ctx context.Context, content any, req Request) (Answer, error) {
	resp, callCtx, cancel, err := a.post(ctx, a.endpoint, content, req)
	if err != nil {
		return nil, err
	}
	answer, err := a.open(ctx, callCtx, cancel, resp)
	if err != nil {
		cancel()
		resp.Body.Close()
		return nil, err
	}
	return answer, nil
}

// post sends the request, and gives the head of its answer with the context of the request,
// which ends it.
func (a *api) post(ctx context.Context, endpoint string, content any, req Request) (*http.Response, context.Context, context.CancelFunc, error) {
	body, err := encodeJSON(content)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, nil, unsent(err)
	}

	var sent atomic.Bool
	callCtx, cancel := context.WithCancel(watchSent(ctx, &sent))
	httpReq, err := http.NewRequestWithContext(callCtx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, nil, nil, unsent(errors.New("cannot make the request"))
	}
	httpReq.Header = a.header.Clone()
	req.Trace.SetHeader(httpReq.Header)
	if req.Stream {
		httpReq.Header.Set("Accept", "text/event-stream")
	} else {
		httpReq.Header.Set("Accept", "application/json")
	}

	resp, err := a.client.Do(httpReq)
	if err != nil {
		cancel()
		if !sent.Load() {
			return nil, nil, nil, unsent(err)
		}
		return nil, nil, nil, failed(ctx, 0, false, err)
	}
	req.answered(resp)
	return resp, callCtx, cancel, nil
}

// watchSent sets sent, and takes it back while a request made with the context that
// it gives waits for a connection: a request that never got one was not sent.
func watchSent(ctx context.Context, sent *atomic.Bool) context.Context {
	sent.Store(true)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { sent.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
}

func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, errors.New("request cannot be encoded as JSON")
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// open checks the head of resp and chooses the reader of its body by how it begins:
// labels are often wrong, and some servers stream what was asked for in one piece, or
// the reverse. ctx is the caller's; callCtx and cancel are those of the request.
func (a *api) open(ctx, callCtx context.Context, cancel context.CancelFunc, resp *http.Response) (Answer, error) {
	status := resp.StatusCode
	if err := a.status(ctx, resp, cancel); err != nil {
		return nil, err
	}
	begun := new(atomic.Bool)
	body := &arrival{resp.Body, begun}
	events := newEventReader(body, maxEvent, maxStream)
	first, err := events.first()
	switch {
	case err != nil:
	case first == '{' || first == '[':
		text, wrong := readWhole(events.r, cancel)
		if wrong != nil {
			err = wrong
			break
		}
		part, err := a.whole(text)
		cancel()
		resp.Body.Close()
		return inOnePiece(ctx, status, begun.Load(), part, err)
	case isFieldStart(first):
		return &stream{
			ctx: ctx, callCtx: callCtx, cancel: cancel, body: body, begun: begun, status: status,
			events: a.events(events),
			rest:   func() { readBriefly(body, cancel) },
		}, nil
	default:
		err = errNoAnswer
	}
	return nil, failed(ctx, status, begun.Load(), err)
}

// status is the *Error of an answer that is none, by its status.
func (a *api) status(ctx context.Context, resp *http.Response, cancel context.CancelFunc) error {
	switch status := resp.StatusCode; {
	case status >= 300:
		said := readBriefly(resp.Body, cancel)
		return refused(status, errorCode(said), a.billsErrors).blame(said)
	case status < 200:
		return failed(ctx, status, false, errStatus)
	}
	return nil
}

// arrival is the body of an answer. It tells when some of it has arrived.
type arrival struct {
	io.ReadCloser
	begun *atomic.Bool
}

func (a *arrival) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if n > 0 {
		a.begun.Store(true)
	}
	return n, err
}

// answered tells whoever wants to know what the provider calls the request.
func (r Request) answered(resp *http.Response) {
	for _, name := range []string{"X-Request-Id", "Request-Id", "X-Amzn-Requestid"} {
		if id := resp.Header.Get(name); r.Answered != nil && isWord(id, 128, codeAlphabet) {
			r.Answered(id)
			return
		}
	}
}

func mediaType(resp *http.Response) string {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return t
}

// readWhole reads a buffered answer within maxJSON. Once it is whole, the end of its
// body is not waited for long, nor does it matter how that ends.
func readWhole(body io.Reader, cancel context.CancelFunc) ([]byte, error) {
	b := make([]byte, 0, 1024)
	var over *time.Timer // runs while what is here is whole
	for whole := false; ; {
		b = slices.Grow(b, 1)
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if len(bytes.TrimSpace(b[len(b)-n:])) > 0 { // more of it, or something behind it
			if over != nil {
				over.Stop()
			}
			if whole = isWholeJSON(b); whole && err == nil {
				over = time.AfterFunc(briefly, cancel)
			}
		}
		switch {
		case len(b) > maxJSON:
			return nil, errTooLarge
		case errors.Is(err, io.EOF), err != nil && whole:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

func isWholeJSON(b []byte) bool {
	end := bytes.TrimRight(b, " \t\r\n")
	return len(end) > 0 && (end[len(end)-1] == '}' || end[len(end)-1] == ']') && json.Valid(b)
}

// readBriefly reads what is left of body, within maxLeftover and briefly.
func readBriefly(body io.Reader, cancel context.CancelFunc) []byte {
	timer := time.AfterFunc(briefly, cancel)
	defer timer.Stop()
	b, _ := io.ReadAll(io.LimitReader(body, maxLeftover))
	return b
}

// wireError is a failure in our own words, so it is safe to show.
type wireError string

func (e wireError) Error() string { return string(e) }

const (
	errStatus     = wireError("unexpected status")
	errNoAnswer   = wireError("neither JSON nor server-sent events")
	errIdle       = wireError("too many events that say nothing")
	errMalformed  = wireError("malformed answer")
	errTooLarge   = wireError("answer too large")
	errUnfinished = wireError("answer ended early")
	errConnection = wireError("connection failed")
)

// saidFailure is the failure of an answer in which the provider says that it failed,
// by an error or by its finish reason. It is safe to show.
type saidFailure struct {
	code string // "" if it gave none
}

func (e saidFailure) Error() string {
	if e.code == "" {
		return "error instead of an answer"
	}
	return "error instead of an answer, code " + e.code
}

// unsent is the *Error of a request that did not leave this process.
func unsent(err error) *Error { return &Error{Failure: Unreachable, Err: err} }

// impossible is the *Error of a request that this provider cannot be sent.
func impossible(why string) *Error { return &Error{Failure: Refused, Err: wireError(why)} }

// refused is the *Error of a request that was answered with an error status.
func refused(status int, code string, billsErrors bool) *Error {
	e := &Error{Failure: Refused, Status: status, Code: code}
	if mayBill(status, code, billsErrors) {
		e.Failure = Failed
	}
	if code != "" {
		e.Err = wireError("code " + code)
	}
	return e
}

// failed is the *Error of a request that may have been billed. begun tells whether
// some of the answer had arrived.
func failed(ctx context.Context, status int, begun bool, err error) *Error {
	e := &Error{Failure: Broken, Status: status, Begun: begun}
	var timeout net.Error
	var said saidFailure
	switch {
	case errors.As(err, &said):
		e.Code, e.Err = said.code, said
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Failure, e.Err = Timeout, ctx.Err()
	case ctx.Err() != nil:
		e.Failure, e.Err = Cancelled, ctx.Err()
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Failure, e.Err = Timeout, errConnection
	default:
		e.Err = safe(err)
	}
	return e
}

// safe drops errors whose text may quote the answer, as net/http's own do when
// they meet a malformed head.
func safe(err error) error {
	var wire wireError
	var op *net.OpError
	switch {
	case errors.As(err, &wire):
		return wire
	case errors.As(err, &op):
		return op
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errUnfinished
	}
	return errConnection
}

// errorCode finds the code in an error envelope of OpenAI's or Anthropic's, in a list of
// one (Google), or without an envelope.
func errorCode(body []byte) string {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) == 1 {
		body = list[0]
	}
	var envelope struct{ Error json.RawMessage }
	if json.Unmarshal(body, &envelope) != nil {
		return ""
	}
	if !present(envelope.Error) {
		return codeOf(body)
	}
	return codeOf(envelope.Error)
}

// codeOf finds the code, or else the type, of an error. Messages may quote the prompt:
// blame alone looks at them, and keeps nothing.
func codeOf(raw json.RawMessage) string {
	var e struct{ Code, Type json.RawMessage }
	if json.Unmarshal(raw, &e) != nil {
		return ""
	}
	for _, raw := range []json.RawMessage{e.Code, e.Type} {
		if word := strings.Trim(string(raw), `"`); word != "null" && isCode(word) {
			return word
		}
	}
	return ""
}

// isCode reports whether s is a plain word: only that is believed to be a code.
func isCode(s string) bool { return isWord(s, 64, codeAlphabet) }

const codeAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

func isWord(s string, longest int, alphabet string) bool {
	return s != "" && len(s) <= longest && strings.Trim(s, alphabet) == ""
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
