// Package lambdahttp lets one ordinary http.Handler serve REST API events of
// Amazon API Gateway: Lambda proxy integration with response streaming.
//
// Guarantees:
//   - A response ends only after the handler has returned, also when its
//     reader goes away: Lambda freezes or ends the process then, and what the
//     handler does last (settling) would be lost. Only the invocation's
//     deadline bounds this wait.
//   - A reader that goes away cancels the request's context and fails Writes,
//     as in net/http. (Lambda's runtime notices a broken stream only when it
//     next sends on it.) A reader that stalls blocks Writes until the deadline
//     set through http.ResponseController.SetWriteDeadline, and no longer.
//   - A panic neither ends the process nor shows its text to the client.
//
// Trusted: the event's requestContext, which the gateway writes. It alone
// gives RemoteAddr and RequestContext. Method, path, query, headers and body
// are the client's and are only carried over.
package lambdahttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// The answers to what no handler answers, in the form that OpenAI clients read.
var (
	badRequest    = openai.Errorf(openai.InvalidJSON, "", "The request could not be read.")
	internalError = openai.Errorf(openai.InternalError, "", "Internal error.")
)

var errPanicked = errors.New("response cut short: the handler panicked")

// Stream adapts h to a Lambda handler for REST API proxy events with response
// streaming. It returns once the headers are final: at the first Write or
// Flush, or when h returns. The Body is an io.ReadCloser that delivers each
// Write as it is made; Close gives up the rest and waits for h.
//
// An event that is not a readable HTTP request is answered 400. If h panics
// before WriteHeader, the answer is 500. If it panics later, or if a Write
// failed, the body ends in an error, which Lambda passes on as a trailer. The
// returned error is context.DeadlineExceeded if there was no answer by the
// deadline of the context, else nil.
func Stream(h http.Handler) func(context.Context, *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
	return func(ctx context.Context, e *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
		requestCtx, cancel := context.WithCancel(ctx)
		r, err := NewRequest(requestCtx, e)
		if err != nil {
			cancel()
			header := http.Header{}
			badRequest.SetHeader(header)
			setErrorHeader(header, e)
			return &events.APIGatewayProxyStreamingResponse{ //nolint:nilerr // the answer says it
				StatusCode:        badRequest.Code.Status(),
				MultiValueHeaders: header,
				Body:              bytes.NewReader(badRequest.Envelope()),
			}, nil
		}

		ended, end := untilDeadline(ctx)
		w := newResponseWriter(r.Method)
		b := &body{pipe: w.reader, cancel: cancel, ended: ended}
		go func() {
			// Deferred, so that a handler that calls runtime.Goexit ends its response too.
			defer cancel()
			defer func() { end(w.finish()) }()
			defer func() {
				if v := recover(); v != nil {
					answerPanic(w, e, v)
				}
			}()
			h.ServeHTTP(w, r)
		}()

		select {
		case <-w.committed:
		case <-ended.Done():
			if errors.Is(ended.Err(), context.DeadlineExceeded) {
				b.Close()
				return nil, context.DeadlineExceeded
			}
		}
		return &events.APIGatewayProxyStreamingResponse{
			StatusCode:        w.status,
			MultiValueHeaders: w.sent,
			Body:              b,
		}, nil
	}
}

// untilDeadline returns a context that ends by end or at the deadline of ctx,
// but not when ctx is merely cancelled.
func untilDeadline(ctx context.Context) (ended context.Context, end context.CancelCauseFunc) {
	ended, stop := context.WithoutCancel(ctx), func() {}
	if deadline, ok := ctx.Deadline(); ok {
		ended, stop = context.WithDeadline(ended, deadline)
	}
	ended, cancel := context.WithCancelCause(ended)
	return ended, func(cause error) {
		cancel(cause)
		stop()
	}
}

func answerPanic(w *responseWriter, e *events.APIGatewayProxyRequest, v any) {
	if v != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
		slog.Error("handler panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()),
			"request_id", e.RequestContext.RequestID)
	}
	if w.status != 0 {
		w.failed = errPanicked
		return
	}
	h := w.Header() // kept: a browser needs the CORS headers to read the answer
	h.Del("Content-Length")
	h.Del("Content-Encoding")
	setErrorHeader(h, e)
	internalError.Write(w)
}

func setErrorHeader(h http.Header, e *events.APIGatewayProxyRequest) {
	h.Set("Cache-Control", "no-store")
	if e != nil && e.RequestContext.RequestID != "" && h.Get("X-Request-Id") == "" {
		h.Set("X-Request-Id", e.RequestContext.RequestID)
	}
}
