package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// A provider is taken for down after so many calls in a row that say so, and asked
// again with a single call after a while.
const (
	failuresToOpen = 5
	openFor        = 5 * time.Second
)

// ErrDown is the cause of the *Error of a call that was not made because the
// provider is taken for down.
var ErrDown = errors.New("the provider is taken for down: its breaker is open")

// WithBreaker gives calls to p a circuit breaker: while p is down they fail at
// once, unsent, as Unreachable.
//
// Only what no caller can bring about counts against p: that it cannot be reached,
// is silent until the deadline, or says that it is down or overloaded (502, 503, 504,
// 529). Any other error may be due to the request, and a script that knows such a
// request must not close p for everybody; it counts neither way. So does an answer
// that has begun and does not end in time: any caller can ask for a long one. Those
// that come in one piece begin when they are complete: give them time for the longest.
//
// The state is of this process alone, so that p is asked a few times by each.
func WithBreaker(p Provider) Provider {
	return &breaker{p, gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:      openFor,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failuresToOpen },
		IsSuccessful: func(err error) bool { return !saysDown(err) },
		IsExcluded:   func(err error) bool { return err != nil && !saysDown(err) && !saysUp(err) },
	})}
}

type breaker struct {
	provider Provider
	circuit  *gobreaker.TwoStepCircuitBreaker[struct{}]
}

func (b *breaker) Call(ctx context.Context, req Request) (Answer, error) {
	done, err := b.circuit.Allow()
	if err != nil {
		return nil, &Error{Failure: Unreachable, Err: ErrDown}
	}
	a, err := b.provider.Call(ctx, req)
	if err != nil {
		done(err)
		return nil, err
	}
	return &watched{Answer: a, done: done}, nil
}

func (b *breaker) Embed(ctx context.Context, req EmbedRequest) (Embedded, error) {
	done, err := b.circuit.Allow()
	if err != nil {
		return Embedded{}, &Error{Failure: Unreachable, Err: ErrDown}
	}
	e, err := Embed(ctx, b.provider, req)
	done(err)
	return e, err
}

// watched reports how its answer ends.
type watched struct {
	Answer
	once sync.Once
	done func(error)
}

func (w *watched) end(err error) { w.once.Do(func() { w.done(err) }) }

func (w *watched) Next() (Part, error) {
	p, err := w.Answer.Next()
	switch {
	case errors.Is(err, io.EOF):
		w.end(nil)
	case err != nil:
		w.end(err)
	}
	return p, err
}

// Close of an answer that has not ended says nothing of the provider.
func (w *watched) Close() error {
	w.end(&Error{Failure: Cancelled})
	return w.Answer.Close()
}

func saysDown(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Failure {
	case Unreachable:
		return !errors.Is(e.Err, context.Canceled)
	case Timeout:
		return !e.Begun
	case Refused, Failed, Broken, Cancelled: // the status says it
	}
	switch e.Status {
	case 502, 503, 504, 529: // 529: Anthropic's "overloaded"
		return true
	}
	return false
}

// saysUp reports whether the provider refused a call as only one that works does:
// 408 and 499 tell of somebody who gave up waiting.
func saysUp(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Failure != Refused && e.Failure != Failed {
		return false
	}
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusRequestTimeout && e.Status != 499
}
