// Package faults breaks calls on their way to a real server and back, so that
// tests meet the failures of a network without a fake of the server.
package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// Fault is what happens to one call.
type Fault int

const (
	None        Fault = iota
	LostRequest       // the server never sees the call
	LostReply         // the server answers, the caller never hears it
	LateRequest       // the caller gives up; the server sees the call when Deliver is called
	Throttled         // the server refuses the call, unread
	ServerError       // the server fails without having done anything
	ErrorReply        // the server does it, and a server error is what the caller hears
	Hang              // no answer until the caller's context ends; the server never sees the call
	HangReply         // the server does it; no answer until the caller's context ends
)

// All are the faults that there are, and Unsure those after which the caller cannot know
// whether the server did it.
var (
	All    = append([]Fault{Throttled}, Unsure...)
	Unsure = []Fault{LostRequest, LostReply, LateRequest, ServerError, ErrorReply, Hang, HangReply}
)

func (f Fault) String() string {
	return [...]string{"none", "request lost", "reply lost", "request late", "throttled", "server error",
		"server error after it applied", "hangs", "hangs after it applied"}[f]
}

// Applied reports whether the server does the call in the end, when all that is late has
// arrived.
func (f Fault) Applied() bool {
	switch f {
	case None, LostReply, LateRequest, ErrorReply, HangReply:
		return true
	case LostRequest, Throttled, ServerError, Hang:
	}
	return false
}

// Always is the plan that each call meets a fault.
func Always(f Fault) func(target string, body []byte) Fault {
	return func(string, []byte) Fault { return f }
}

// ErrLost is what the caller sees of a lost request or reply.
var ErrLost = errors.New("connection lost")

// Transport is an http.RoundTripper with faults.
type Transport struct {
	Base http.RoundTripper // nil: http.DefaultTransport
	// Plan decides over each call, by its X-Amz-Target and its body.
	Plan func(target string, body []byte) Fault

	mu   sync.Mutex
	late []func() error
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body.Close()
	}
	send := func(ctx context.Context) (*http.Response, error) {
		again := req.Clone(ctx)
		again.Body = io.NopCloser(bytes.NewReader(body))
		base := t.Base
		if base == nil {
			base = http.DefaultTransport
		}
		return base.RoundTrip(again)
	}
	deliver := func() error {
		res, err := send(context.WithoutCancel(req.Context()))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return errors.Join(err, res.Body.Close())
	}

	fault := None
	if t.Plan != nil {
		fault = t.Plan(req.Header.Get("X-Amz-Target"), body)
	}
	switch fault {
	case None:
	case LostRequest:
		return nil, ErrLost
	case LateRequest:
		t.mu.Lock()
		t.late = append(t.late, deliver)
		t.mu.Unlock()
		return nil, ErrLost
	case LostReply:
		return nil, errors.Join(ErrLost, deliver())
	case Hang:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case HangReply:
		if err := deliver(); err != nil {
			return nil, err
		}
		<-req.Context().Done()
		return nil, req.Context().Err()
	case Throttled:
		return answer(req, http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow down"}`), nil
	case ServerError:
		return answer(req, http.StatusInternalServerError, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"internal"}`), nil
	case ErrorReply:
		if err := deliver(); err != nil {
			return nil, err
		}
		return answer(req, http.StatusInternalServerError, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"internal"}`), nil
	}
	return send(req.Context())
}

// Deliver lets all late requests reach the server, oldest first.
func (t *Transport) Deliver() error {
	t.mu.Lock()
	late := t.late
	t.late = nil
	t.mu.Unlock()
	var errs []error
	for _, deliver := range late {
		errs = append(errs, deliver())
	}
	return errors.Join(errs...)
}

func answer(req *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:          io.NopCloser(bytes.NewReader([]byte(body))),
		ContentLength: int64(len(body)),
	}
}

// Forget drops all late requests: they are lost.
func (t *Transport) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = nil
}
