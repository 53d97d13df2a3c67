package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// script is a provider whose calls end as they are told.
type script struct {
	calls int
	next  func() (Answer, error)
}

func (s *script) Call(context.Context, Request) (Answer, error) {
	s.calls++
	return s.next()
}

// ending is an answer that ends with err after its parts.
type ending struct {
	parts int
	err   error
}

func (e *ending) Next() (Part, error) {
	if e.parts > 0 {
		e.parts--
		return Part{Content: "x"}, nil
	}
	return Part{}, e.err
}

func (e *ending) Close() error { return nil }

// use makes a call and reads its answer to the end.
func use(p Provider) error {
	a, err := p.Call(context.Background(), Request{})
	if err != nil {
		return err
	}
	defer a.Close()
	for {
		if _, err := a.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	var (
		down        = func() (Answer, error) { return nil, &Error{Failure: Refused, Status: 503} }
		unreachable = func() (Answer, error) { return nil, &Error{Failure: Unreachable, Err: errors.New("dial")} }
		timeout     = func() (Answer, error) { return nil, &Error{Failure: Timeout} }
		silent      = func() (Answer, error) { return &ending{0, &Error{Failure: Timeout, Status: 200}}, nil }
		gateway     = func() (Answer, error) { return nil, &Error{Failure: Failed, Status: 504} }
		overloaded  = func() (Answer, error) { return &ending{0, &Error{Failure: Broken, Status: 529}}, nil }

		good    = func() (Answer, error) { return &ending{2, io.EOF}, nil }
		refused = func() (Answer, error) { return nil, &Error{Failure: Refused, Status: 429} }

		failed    = func() (Answer, error) { return nil, &Error{Failure: Refused, Status: 500} }
		gaveUp    = func() (Answer, error) { return nil, &Error{Failure: Failed, Status: 408} }
		late      = func() (Answer, error) { return &ending{1, &Error{Failure: Timeout, Begun: true}}, nil }
		cut       = func() (Answer, error) { return &ending{1, &Error{Failure: Broken}}, nil }
		cancelled = func() (Answer, error) { return nil, &Error{Failure: Cancelled} }
		gone      = func() (Answer, error) { return nil, &Error{Failure: Unreachable, Err: context.Canceled} }
	)
	type step func() (Answer, error)
	times := func(n int, s step) []step {
		var all []step
		for range n {
			all = append(all, s)
		}
		return all
	}
	join := func(parts ...[]step) (all []step) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, test := range map[string]struct {
		steps []step
		opens bool
	}{
		"down":                {times(5, down), true},
		"unreachable":         {times(5, unreachable), true},
		"no answer":           {times(5, timeout), true},
		"a head and no body":  {times(5, silent), true},
		"a gateway's timeout": {times(5, gateway), true},
		"overloaded inside":   {times(5, overloaded), true},
		"a mixture":           {[]step{down, timeout, unreachable, silent, gateway}, true},
		"once less":           {times(4, down), false},
		"an answer between":   {join(times(4, down), times(1, good), times(4, down)), false},
		"a refusal between":   {join(times(4, down), times(1, refused), times(4, down)), false},
		"nothing between":     {join(times(4, down), []step{failed, cut, cancelled, gone, late, gaveUp}, times(1, down)), true},
		"failures by request": {times(50, failed), false},
		"cut answers":         {times(50, cut), false},
		"long answers":        {times(50, late), false},
		"somebody gave up":    {times(50, gaveUp), false},
		"too many requests":   {times(50, refused), false},
		"callers who leave":   {join(times(50, cancelled), times(50, gone)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{}
			p := WithBreaker(s)
			for i, step := range test.steps {
				s.next = step
				err := use(p)
				check.Must(t, !errors.Is(err, ErrDown), "open after %d calls", i)
			}
			s.next = good
			err := use(p)
			var e *Error
			if opens := errors.As(err, &e) && errors.Is(err, ErrDown); opens != test.opens {
				t.Fatalf("opens: %t (%v), want %t", opens, err, test.opens)
			}
			if test.opens && (e.Failure != Unreachable || e.Billed() || s.calls != len(test.steps)) {
				t.Errorf("%v, billed %t, %d calls for %d", err, e.Billed(), s.calls, len(test.steps))
			}
		})
	}
}

// Answers that have begun and are still going on at the deadline are no sign of an
// outage, even if all that has come is what no caller is shown; silence is.
func TestBreakerOnTheWire(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		for name, test := range map[string]struct {
			begins []string
			opens  bool
		}{
			"text":           {d.events[:d.complete-2], false},
			"an event":       {d.events[:1], false},
			"half an event":  {[]string{d.events[0][:10]}, false},
			"nothing at all": {nil, true},
		} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				sent := strings.Join(test.begins, "")
				url, calls := d.serve(t, hang(d.answer(true, sent)))
				var deadline atomic.Pointer[deadline]
				p := WithBreaker(d.make(t, url, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					return deadline.Load().passing(len(sent)).Transport.RoundTrip(r)
				})}))
				for range failuresToOpen {
					ctx := newDeadline(t)
					deadline.Store(&ctx)
					_, err := call(ctx, t, p, request(true))
					wantFailure(t, err, Timeout, 200)
				}
				ctx := newDeadline(t)
				deadline.Store(&ctx)
				_, err := call(ctx, t, p, request(true))
				if opens := errors.Is(err, ErrDown); opens != test.opens {
					t.Errorf("opens: %t (%v), want %t", opens, err, test.opens)
				}
				n := calls.Load()
				check.That(t, (!test.opens || n == failuresToOpen) && (test.opens || n == failuresToOpen+1), "%d requests", n)
			})
		}
	}
}

// TestBreakerRecovers: after a while one call asks whether the provider is back.
func TestBreakerRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{next: func() (Answer, error) { return nil, &Error{Failure: Unreachable} }}
		p := WithBreaker(s)
		for range failuresToOpen {
			_ = use(p)
		}
		time.Sleep(openFor - time.Millisecond)
		if err := use(p); !errors.Is(err, ErrDown) {
			t.Fatalf("asked too early: %v", err)
		}
		time.Sleep(2 * time.Millisecond)
		if err := use(p); errors.Is(err, ErrDown) || s.calls != failuresToOpen+1 {
			t.Fatalf("not asked again: %v, %d calls", err, s.calls)
		}
		if err := use(p); !errors.Is(err, ErrDown) {
			t.Fatalf("asked again though still down: %v", err)
		}

		// While one asks the others are not let through; a caller who leaves decides
		// nothing.
		time.Sleep(openFor + time.Millisecond)
		s.next = func() (Answer, error) { return &ending{2, io.EOF}, nil }
		asking, err := p.Call(t.Context(), Request{})
		check.OK(t, err)
		if err := use(p); !errors.Is(err, ErrDown) {
			t.Errorf("two ask at once: %v", err)
		}
		_ = asking.Close()
		if err := use(p); err != nil {
			t.Fatalf("after one who left: %v", err)
		}
		s.next = func() (Answer, error) { return nil, &Error{Failure: Unreachable} }
		for range failuresToOpen - 1 {
			err := use(p)
			check.Must(t, !errors.Is(err, ErrDown), "still half open after an answer")
		}
	})
}
