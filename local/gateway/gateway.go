// Package gateway stands in for Amazon API Gateway (REST, Lambda proxy
// integration with response streaming) and for Lambda's invocations on a
// laptop.
//
// Guarantees: a function gets a real proxy event, through JSON, and its
// response is read as Lambda sends it, prelude first, each chunk passed on as
// it arrives. As in Lambda, a client that leaves is not noticed: the function
// runs to its end under its own deadline, and Close waits for it.
//
// Trusted: the hooks in Options. The request is the client's; only its peer
// address and what Identity made of it get into requestContext.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

const (
	maxPayload     = 10 << 20
	defaultTimeout = 29 * time.Second // the real gateway's own default
	functionARN    = "arn:aws:lambda:us-east-1:" + accountID + ":function:local"
)

// Function is one instance of a function, as lambdahttp.Stream makes it.
type Function = func(context.Context, *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error)

// Options of a Gateway. The zero value is usable.
type Options struct {
	// Stage is the first part of every public path in requestContext. Requests
	// are served with and without it. Empty: no stage, as behind a custom domain.
	Stage string
	// Timeout is the function's, and the deadline of each invocation. 0: 29 s.
	Timeout time.Duration
	// Now is the clock of requestTime. The default is time.Now.
	Now func() time.Time
	// Identity says who signed a request (IAM routes). It may read the body.
	// The client gets 403 and the error's text if it fails. Default: nobody.
	Identity func(*http.Request) (events.APIGatewayRequestIdentity, error)
	// SourceIP gives the client's address. The default is the peer's.
	SourceIP func(*http.Request) string
}

// Gateway is an http.Handler in front of instances of a function.
type Gateway struct {
	opts      Options
	instances []Function
	turn      atomic.Uint64

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// New returns a Gateway that takes the instances in turn. It panics without any.
func New(opts Options, instances ...Function) *Gateway {
	if len(instances) == 0 {
		panic("gateway: no function")
	}
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.SourceIP == nil {
		opts.SourceIP = peer
	}
	return &Gateway{opts: opts, instances: instances}
}

// Close refuses new requests (503) and waits until every invocation has ended.
// The error is that of ctx if it is done first.
func (g *Gateway) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		g.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Gateway) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running.Add(1)
	}
	return !g.closed
}

// ServeHTTP answers when the function has ended, or at its deadline. It panics
// with http.ErrAbortHandler, as a handler may, to cut a response that the
// function cut.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.begin() {
		answer(w, http.StatusServiceUnavailable, "Service Unavailable")
		return
	}
	defer g.running.Done()

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		answer(w, http.StatusRequestEntityTooLarge, "Request Too Long")
		return
	} else if err != nil {
		answer(w, http.StatusBadRequest, "Bad Request")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var identity events.APIGatewayRequestIdentity
	if g.opts.Identity != nil {
		if identity, err = g.opts.Identity(r); err != nil {
			slog.Warn("request refused", "method", r.Method, "path", r.URL.Path, "reason", err)
			answer(w, http.StatusForbidden, err.Error())
			return
		}
	}
	event, err := throughJSON(g.newEvent(r, body, identity))
	if err != nil {
		answer(w, http.StatusInternalServerError, "Internal server error")
		return
	}
	g.invoke(w, event)
}

func (g *Gateway) invoke(w http.ResponseWriter, event *events.APIGatewayProxyRequest) {
	// Not the request's context: Lambda knows no client.
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.Timeout)
	defer cancel()
	ctx = lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{
		AwsRequestID:       newUUID(),
		InvokedFunctionArn: functionARN,
	})
	function := g.instances[(g.turn.Add(1)-1)%uint64(len(g.instances))]

	type result struct {
		resp *events.APIGatewayProxyStreamingResponse
		err  error
	}
	called := make(chan result, 1)
	g.running.Go(func() {
		resp, err := call(ctx, function, event)
		if resp != nil {
			// Lambda stops a function at its deadline; all that can be stopped here is the response.
			context.AfterFunc(ctx, func() { resp.Close() })
		}
		called <- result{resp, err}
	})

	var res result
	select {
	case res = <-called:
	case <-ctx.Done():
	}
	switch {
	case timedOut(ctx):
		answer(w, http.StatusGatewayTimeout, "Endpoint request timed out")
	case res.err != nil:
		slog.Error("function failed", "error", res.err)
		answer(w, http.StatusBadGateway, "Internal server error")
	default:
		defer res.resp.Close()
		relay(ctx, w, res.resp)
	}
}

// timedOut compares with the clock and does not ask ctx: a function that gives up at its
// deadline may do so just before ctx is done.
func timedOut(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// call calls a Function as Lambda's runtime does: a panic becomes an error.
func call(ctx context.Context, f Function, event *events.APIGatewayProxyRequest) (resp *events.APIGatewayProxyStreamingResponse, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("function panicked: %v\n%s", v, debug.Stack())
		}
	}()
	if resp, err = f(ctx, event); err == nil && resp == nil {
		err = errors.New("function returned no response")
	}
	return resp, err
}

// answer is one of the gateway's own.
func answer(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}
