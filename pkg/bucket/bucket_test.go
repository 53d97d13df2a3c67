package bucket

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

var ctx = context.Background()

func TestReserveAndSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	req := w.request("user#1", Charge{Limit: tokens, Cost: 1000}, Charge{Limit: requests, Cost: 1}, Charge{Limit: quota, Cost: 1})

	d, err := b.Reserve(ctx, req)
	check.OK(t, err)
	check.Equal(t, w.calls.Load(), 1, "a reserve took … round trips")
	for i, want := range []int64{4000, 19, 9} {
		if got := d.Limits[i].Remaining; got != want {
			t.Errorf("%s: %d remain after admission, want %d", d.Limits[i].Limit.Name, got, want)
		}
	}
	if got, want := d.Limits[0].FullIn, 12*time.Minute; got != want {
		t.Errorf("tokens are full in %s, want %s", got, want)
	}
	w.wantOpen("user#1", 1)

	w.settle(d.Reservation, 250, 0, 0)
	w.wantOpen("user#1", 0)
	for _, tc := range []struct {
		limit Limit
		want  int64
	}{{tokens, 4750}, {requests, 19}, {quota, 10}} {
		check.Equal(t, w.left("user#1", tc.limit), tc.want, "%s: remain after the settle", tc.limit.Name)
	}
	check.Equal(t, w.calls.Load(), 2, "reserve and settle took … round trips")
}

func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 10}, Charge{Limit: quota, Cost: 10})), 10, 10)
	before := w.item("user#1")
	d := w.deny(b, w.request("user#1", Charge{Limit: tokens, Cost: 10}, Charge{Limit: requests, Cost: 1}, Charge{Limit: quota, Cost: 1}), "cv")
	check.Equal(t, d.RetryAfter, 24*time.Hour/10-100*time.Microsecond, "retry after")
	after := w.item("user#1")
	check.That(t, len(before) == len(after) && w.left("user#1", tokens) == 4990, "a denial changed the item: %v, then %v", before, after)
}

func TestDenialNamesTheLongestWaitFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 5000}, Charge{Limit: requests, Cost: 20}, Charge{Limit: quota, Cost: 10})), 5000, 20, 10)
	d, err := b.Reserve(ctx, w.request("user#1", Charge{Limit: requests, Cost: 1}, Charge{Limit: tokens, Cost: 5000}, Charge{Limit: quota, Cost: 1}))
	check.OK(t, err)
	var names []string
	for _, denial := range d.Denials {
		names = append(names, denial.Limit.Name)
		check.Equal(t, denial.Remaining, 0, "%s: remain", denial.Limit.Name)
	}
	check.Equal(t, strings.Join(names, " "), "cv tokens requests", "denied by")
}

// An increment above the period would pass the full form's condition: a full
// bucket of 5,000 admitted 9,000.
func TestMoreThanTheCapacityIsDeniedUnsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.deny(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 9000}), "tokens")
	check.That(t, d.Impossible && d.Remaining == 5000 && w.calls.Load() == 0, "denial %+v after %d round trips", d, w.calls.Load())
}

// The period is in the attribute's name: a TAT of a day ahead, left by a period
// of 24 h, must not lock the user out after a change to one hour.
func TestShorterPeriodStartsAfresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	daily := Limit{Name: "tokens", Capacity: 5000, Period: 24 * time.Hour, Return: OnSettle}
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: daily, Cost: 5000})), 5000)
	w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 5000}))
}

// The receipt holds microseconds, not units: a settle gives back what the reserve
// took, by the capacity of then.
func TestChangedCapacitySettlesRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 5000}))
	generous := tokens
	generous.Capacity = 10_000
	w.settle(r, 0)
	check.Equal(t, w.left("user#1", generous), 10_000, "of 10000 remain")
	// The same for a sweep by a process with another capacity.
	r = w.admit(w.process(), w.request("user#2", Charge{Limit: quota, Cost: 10}))
	w.clock.advance(2 * time.Minute)
	bigger := quota
	bigger.Capacity = 20
	w.admit(w.process(), w.request("user#2", Charge{Limit: bigger, Cost: 20}))
	w.settle(r, 10) // too late to matter
	check.Equal(t, w.left("user#2", bigger), 0, "remain")
}

func TestInFlightIsALimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	req := w.request("user#1", Charge{Limit: tokens, Cost: 1})
	req.MaxInFlight = 2
	first := w.admit(b, req)
	w.admit(b, req)
	d := w.deny(b, req, InFlight)
	check.That(t, d.Requested == 1 && d.Remaining == 0 && d.Limit.Capacity == 2, "denial %+v", d)
	// Not remembered: a place that has become free is to be had at once.
	w.settle(first, 1)
	w.admit(b, req)
	w.wantOpen("user#1", 2)
}

func TestInFlightDenialIsNotRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here, there := w.process(), w.process()
	req := w.request("user#1", Charge{Limit: tokens, Cost: 1})
	req.MaxInFlight = 1
	r := w.admit(there, req)
	w.deny(here, req, InFlight)
	w.settle(r, 1)
	w.admit(here, req)
}

func TestDenialsAreAnsweredFromMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 4000})), 4000)
	dear := w.request("user#1", Charge{Limit: tokens, Cost: 2000})
	d := w.deny(b, dear, "tokens")
	check.Must(t, d.Remaining == 1000, "%d remain, want 1000", d.Remaining)
	w.calls.Store(0)
	w.clock.advance(900 * time.Millisecond)
	again := w.deny(b, dear, "tokens")
	check.That(t, w.calls.Load() == 0, "a repeated denial cost a round trip")
	check.Equal(t, d.RetryAfter-again.RetryAfter, 900*time.Millisecond, "0.9 s later the wait is … shorter")
	// What the denial said would fit does fit: each request is judged by itself.
	w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: d.Remaining}))

	// A denial is remembered for a second at most.
	w.deny(b, dear, "tokens")
	w.calls.Store(0)
	w.clock.advance(time.Second)
	w.deny(b, dear, "tokens")
	check.Equal(t, w.calls.Load(), 1, "after a second the store was asked … times")
}

// The TTL must cover the longest limit of the item, not of the request.
func TestItemOutlivesItsLongestLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10})), 10)
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: requests, Cost: 1})), 1)
	least := w.clock.now().Add(24*time.Hour + time.Minute + HoldGrace).Unix()
	got := w.number("user#1", attrExpires)
	check.That(t, got >= least, "expires at %d, %d s too early", got, least-got)
}

func TestOverrunIsChargedInFull(t *testing.T) {
	t.Parallel()
	t.Run("while running", func(t *testing.T) {
		w := newWorld(t)
		r := w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 1000}))
		w.settle(r, 1500)
		check.Equal(t, w.left("user#1", tokens), 3500, "remain")
	})
	t.Run("when full again", func(t *testing.T) {
		// Added to a TAT in the past the debt would be lost.
		w := newWorld(t)
		r := w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 1}))
		w.clock.advance(30 * time.Second)
		w.settle(r, 1001)
		check.Equal(t, w.left("user#1", tokens), 4000, "remain")
	})
	t.Run("into debt", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		w.settle(w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 5000})), 10_000)
		d := w.deny(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}), "tokens")
		check.That(t, d.Remaining == 0 && d.RetryAfter >= time.Hour, "denial %+v", d)
		w.clock.advance(2 * time.Hour)
		w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 5000}))
	})
	t.Run("the form was wrong", func(t *testing.T) {
		// Another process moves the TAT between the guess and the write.
		w := newWorld(t)
		here, there := w.process(), w.process()
		r := w.admit(here, w.request("user#1", Charge{Limit: tokens, Cost: 1}))
		w.clock.advance(30 * time.Second)
		w.admit(there, w.request("user#1", Charge{Limit: tokens, Cost: 1000}))
		w.settle(r, 1001)
		check.Equal(t, w.left("user#1", tokens), 3000, "remain")
	})
	t.Run("of two limits", func(t *testing.T) {
		w := newWorld(t)
		r := w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 100}, Charge{Limit: quota, Cost: 1}))
		w.settle(r, 200, 2)
		if w.left("user#1", tokens) != 4800 || w.left("user#1", quota) != 8 {
			t.Errorf("tokens %d, quota %d remain, want 4800 and 8", w.left("user#1", tokens), w.left("user#1", quota))
		}
	})
	t.Run("absurd", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		w.settle(w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1})), 1<<62)
		w.deny(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}), "tokens")
		check.OK(t, b.Clear(ctx, "user#1", tokens))
		w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 5000}))
	})
}

func TestSettleIsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	r := w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1000}))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := r.Settle(ctx, []int64{0}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.settle(r, 0)
	w.wantOpen("user#1", 0)
	check.Equal(t, w.micros("user#1", "g_tokens_3600"), 1000*720_000, "credited … µs")
	// Another process with the same receipt, as a retry after a restart would have.
	twin := &Reservation{b: w.process(), key: r.key, id: r.id, hold: r.hold, start: r.start, charges: r.charges, afterKnown: true}
	w.settle(twin, 0)
	check.Equal(t, w.micros("user#1", "g_tokens_3600"), 1000*720_000, "credited … µs")
}

func TestSettleRefusesWrongFigures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 1000}))
	if err := r.Settle(ctx, []int64{1, 2}); err == nil {
		t.Error("two figures for one charge accepted")
	}
	if err := r.Settle(ctx, []int64{-1}); err == nil {
		t.Error("a negative figure accepted")
	}
	w.wantOpen("user#1", 1)
	w.settle(r, 1000)
}

func TestCreditRaceIsResolvedByTheStore(t *testing.T) {
	t.Parallel()
	// The timeline of TestRefundCountsRefillAndOtherSettles, on the store: the
	// second settle does not know of the first and is refused by the fence.
	w := newWorld(t)
	hundred := Limit{Name: "tokens", Capacity: 100, Period: 100 * time.Second, Return: OnSettle}
	one, two, three := w.process(), w.process(), w.process()
	first := w.admit(one, w.request("user#1", Charge{Limit: hundred, Cost: 50}))
	second := w.admit(two, w.request("user#1", Charge{Limit: hundred, Cost: 50}))
	w.settle(first, 0)
	w.clock.advance(30 * time.Second)
	w.admit(three, w.request("user#1", Charge{Limit: hundred, Cost: 50}))
	w.settle(second, 0)
	check.Equal(t, w.left("user#1", hundred), 50, "remain beside 50 of 100 in use")
}

func TestWrongGuessNeedsOneMoreTry(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		limit Limit
		age   time.Duration // of the other process's call
		want  int64         // round trips
	}{
		{"never used", tokens, -1, 1},
		{"long period, running", tokens, time.Second, 1},
		{"long period, full again", tokens, time.Hour, 2},
		{"short period, running", requests, time.Second, 2},
		{"short period, full again", requests, time.Minute, 1},
		{"about to be full", tokens, 3600*time.Millisecond - 20*time.Millisecond, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.age >= 0 {
				w.settle(w.admit(w.process(), w.request("user#1", Charge{Limit: tc.limit, Cost: 5})), 5)
				w.clock.advance(tc.age)
			}
			w.calls.Store(0)
			w.admit(w.process(), w.request("user#1", Charge{Limit: tc.limit, Cost: 1}))
			check.Equal(t, w.calls.Load(), tc.want, "round trips")
		})
	}
}

// Guessed full while in truth about to be: the next try charges what it costs and no
// more.
func TestNearlyFullIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here, there := w.process(), w.process()
	w.settle(w.admit(here, w.request("user#1", Charge{Limit: requests, Cost: 1})), 1)
	w.clock.advance(4 * time.Second)
	w.settle(w.admit(there, w.request("user#1", Charge{Limit: requests, Cost: 1})), 1)
	w.clock.advance(2980 * time.Millisecond) // 20 ms until full again
	w.calls.Store(0)
	w.admit(here, w.request("user#1", Charge{Limit: requests, Cost: 1}))
	check.Equal(t, w.calls.Load(), 2, "round trips")
	want := w.now() + 3*second + 20*milli
	got := w.micros("user#1", "t_requests_60")
	check.That(t, got == want, "TAT is %d µs off", got-want)
}

func TestSweep(t *testing.T) {
	t.Parallel()
	lost := func(w *world, b *Buckets) *Reservation {
		req := w.request("user#1", Charge{Limit: tokens, Cost: 1000}, Charge{Limit: requests, Cost: 1}, Charge{Limit: quota, Cost: 10})
		req.Note = []byte("docqa 12 345")
		return w.admit(b, req)
	}
	t.Run("by a reserve that it stood in the way of", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		r := lost(w, b)
		w.clock.advance(time.Minute + HoldGrace)
		w.deny(b, w.request("user#1", Charge{Limit: quota, Cost: 1}), "cv") // expires now, not yet expired
		w.clock.advance(time.Second)
		w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 8}))
		check.Must(t, len(w.abandoned) == 1, "told of %d abandoned calls, want 1", len(w.abandoned))
		a := w.abandoned[0]
		check.That(t, a.Key == "user#1" && a.ID == r.ID() && string(a.Note) == "docqa 12 345" && a.Start.Equal(r.Start()) && a.Expiry.Sub(a.Start) == time.Minute+HoldGrace,
			"told of %+v", a)
		w.wantOpen("user#1", 1)
		// The quota came back, less the minute's refill; tokens and requests did not.
		check.Equal(t, w.left("user#1", quota), 2, "quota: remain")
		check.Equal(t, w.left("user#1", tokens), 4000+71*5000/3600, "tokens: remain")
		// The late settle finds nothing left to do.
		before := w.left("user#1", quota)
		w.settle(r, 0, 0, 0)
		w.wantOpen("user#1", 1)
		check.That(t, w.left("user#1", quota) == before && w.left("user#1", tokens) == 4000+71*5000/3600, "a settle after the sweep changed the limits")
	})
	t.Run("by the settle of a call that it did not stand in the way of", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		lost(w, b)
		w.clock.advance(2 * time.Minute)
		r := w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}))
		w.wantOpen("user#1", 2)
		w.settle(r, 1)
		w.wantOpen("user#1", 0)
		check.Equal(t, w.left("user#1", quota), 10, "quota: remain")
		check.Equal(t, len(w.abandoned), 1, "told of … abandoned calls")
	})
	t.Run("before a denial for too many in flight", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		req := w.request("user#1", Charge{Limit: tokens, Cost: 1})
		for range req.MaxInFlight {
			w.admit(b, req)
		}
		w.deny(b, req, InFlight)
		w.clock.advance(2 * time.Minute)
		w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}))
		w.wantOpen("user#1", 1)
	})
	t.Run("not before the event is told", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		lost(w, b)
		w.clock.advance(2 * time.Minute)
		w.abandonedErr = errors.New("ledger down")
		w.deny(b, w.request("user#1", Charge{Limit: quota, Cost: 1}), "cv")
		w.wantOpen("user#1", 1)
		w.abandonedErr = nil
		w.clock.advance(time.Second)
		w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 1}))
	})
	t.Run("nothing back into what was cleared", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		lost(w, b)
		w.clock.advance(4 * time.Second) // within the margin for clocks that differ
		check.OK(t, b.Clear(ctx, "user#1", quota))
		w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10}))
		w.clock.advance(68 * time.Second)
		w.deny(b, w.request("user#1", Charge{Limit: quota, Cost: 1}), "cv")
		w.wantOpen("user#1", 1) // the one after the clear
	})
	t.Run("taken after the clear", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}))
		check.OK(t, b.Clear(ctx, "user#1", quota))
		w.clock.advance(6 * time.Second)
		lost(w, b)
		w.clock.advance(2 * time.Minute)
		w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 9}))
	})
}

func TestClear(t *testing.T) {
	t.Parallel()
	t.Run("makes full what was named and nothing else", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		w.settle(w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 5000}, Charge{Limit: quota, Cost: 10})), 5000, 10)
		w.deny(b, w.request("user#1", Charge{Limit: quota, Cost: 1}), "cv")
		check.OK(t, b.Clear(ctx, "user#1", quota))
		// The process that cleared does not repeat its denial.
		w.deny(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}), "tokens")
		w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10}))
	})
	t.Run("makes no item", func(t *testing.T) {
		w := newWorld(t)
		err := w.process().Clear(ctx, "user#typo", tokens)
		check.That(t, errors.Is(err, ErrNotFound), "error %v, want ErrNotFound", err)
		check.That(t, w.item("user#typo") == nil, "an item was made")
	})
	t.Run("a call that was open settles and credits nothing", func(t *testing.T) {
		w := newWorld(t)
		b := w.process()
		open := w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 5000}, Charge{Limit: quota, Cost: 10}))
		check.OK(t, b.Clear(ctx, "user#1", tokens, quota))
		w.wantOpen("user#1", 1)
		after := w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 5000}, Charge{Limit: quota, Cost: 10}))
		w.settle(open, 0, 0)
		w.wantOpen("user#1", 1)
		check.That(t, w.left("user#1", tokens) == 0 && w.left("user#1", quota) == 0, "a settle of an older reservation credited the cleared state")
		w.settle(after, 0, 0)
		check.That(t, w.left("user#1", tokens) == 5000 && w.left("user#1", quota) == 10, "a settle of a newer reservation did not")
	})
	t.Run("other processes learn of it within a second", func(t *testing.T) {
		w := newWorld(t)
		here, there := w.process(), w.process()
		w.settle(w.admit(here, w.request("user#1", Charge{Limit: tokens, Cost: 5000})), 5000)
		w.deny(here, w.request("user#1", Charge{Limit: tokens, Cost: 1}), "tokens")
		check.OK(t, there.Clear(ctx, "user#1", tokens))
		w.deny(here, w.request("user#1", Charge{Limit: tokens, Cost: 1}), "tokens")
		w.clock.advance(time.Second)
		w.admit(here, w.request("user#1", Charge{Limit: tokens, Cost: 5000}))
	})
	t.Run("in a storm", func(t *testing.T) {
		w := newWorld(t)
		w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 1}))
		var wg sync.WaitGroup
		for range 8 {
			b := w.process()
			wg.Go(func() {
				for i := range 30 {
					req := w.request("user#1", Charge{Limit: tokens, Cost: 500}, Charge{Limit: quota, Cost: 1})
					req.MaxInFlight = 100
					d, err := b.Reserve(ctx, req)
					// Clears without a pause may change the state under all tries.
					if err != nil && !errors.Is(err, ErrUnavailable) {
						t.Error(err)
					} else if d.Reservation != nil {
						if err := d.Reservation.Settle(ctx, []int64{int64(i * 10), int64(i % 2)}); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Go(func() {
			for range 30 {
				if err := w.process().Clear(ctx, "user#1", tokens, quota); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		w.wantOpen("user#1", 1) // the first one
		check.OK(t, w.process().Clear(ctx, "user#1", tokens, quota))
		check.That(t, w.left("user#1", tokens) == 5000 && w.left("user#1", quota) == 10, "not full after the last clear")
	})
}

func TestPeek(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	s, err := b.Peek(ctx, "user#1")
	check.That(t, err == nil && !s.Exists && s.InFlight == 0 && s.Limit(tokens).Remaining == 5000 && s.Limit(tokens).FullIn == 0, "of nobody: %+v, %v", s, err)
	check.That(t, w.item("user#1") == nil, "looking made an item")
	req := w.request("user#1", Charge{Limit: tokens, Cost: 1000})
	req.Note = []byte("note")
	r := w.admit(b, req)
	s, err = b.Peek(ctx, "user#1")
	check.That(t, err == nil && s.Exists && s.InFlight == 1 && s.Limit(tokens).Remaining == 4000 && s.Limit(tokens).FullIn == 12*time.Minute,
		"with an open call: %+v, %v", s, err)
	check.That(t, len(s.Holds) == 1 && s.Holds[0].ID == r.ID() && string(s.Holds[0].Note) == "note", "holds %+v", s.Holds)
}

// A process whose clock is behind or ahead by 2 s admits at most what 4 s refill.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	offset := func(d time.Duration) *Buckets {
		return w.process(func(o *Options) { o.Now = func() time.Time { return w.clock.now().Add(d) } })
	}
	ahead, behind := offset(2*time.Second), offset(-2*time.Second)
	quick := Limit{Name: "tokens", Capacity: 100, Period: 100 * time.Second, Return: OnSettle}
	var admitted int64
	for range 200 {
		for _, b := range []*Buckets{ahead, behind} {
			d, err := b.Reserve(ctx, w.request("user#1", Charge{Limit: quick, Cost: 1}))
			check.OK(t, err)
			if d.Reservation != nil {
				admitted++
				w.settle(d.Reservation, 1)
			}
		}
		w.clock.advance(time.Second)
	}
	most := int64(100 + 199 + 4)
	check.That(t, admitted <= most, "%d admitted in 199 s, at most %d may be", admitted, most)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	good := w.request("user#1", Charge{Limit: tokens, Cost: 1})
	for name, change := range map[string]func(*Request){
		"no key":         func(r *Request) { r.Key = "" },
		"long key":       func(r *Request) { r.Key = strings.Repeat("k", 1025) },
		"no charges":     func(r *Request) { r.Charges = nil },
		"no cost":        func(r *Request) { r.Charges = []Charge{{Limit: tokens, Cost: 0}} },
		"negative cost":  func(r *Request) { r.Charges = []Charge{{Limit: tokens, Cost: -1}} },
		"twice the same": func(r *Request) { r.Charges = []Charge{{Limit: tokens, Cost: 1}, {Limit: tokens, Cost: 1}} },
		"no capacity":    func(r *Request) { r.Charges = []Charge{{Limit: Limit{Name: "x", Period: time.Hour}, Cost: 1}} },
		"bad name": func(r *Request) {
			r.Charges = []Charge{{Limit: Limit{Name: "X", Capacity: 1, Period: time.Hour}, Cost: 1}}
		},
		"fraction of second": func(r *Request) {
			r.Charges = []Charge{{Limit: Limit{Name: "x", Capacity: 1, Period: 1500 * time.Millisecond}, Cost: 1}}
		},
		"period too long": func(r *Request) {
			r.Charges = []Charge{{Limit: Limit{Name: "x", Capacity: 1, Period: 48 * time.Hour}, Cost: 1}}
		},
		"unknown return": func(r *Request) {
			r.Charges = []Charge{{Limit: Limit{Name: "x", Capacity: 1, Period: time.Hour, Return: 9}, Cost: 1}}
		},
		"nobody in flight": func(r *Request) { r.MaxInFlight = 0 },
		"deadline past":    func(r *Request) { r.Deadline = w.clock.now() },
		"long note":        func(r *Request) { r.Note = make([]byte, MaxNote+1) },
	} {
		req := good
		change(&req)
		if d, err := b.Reserve(ctx, req); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: decision %+v, error %v", name, d, err)
		}
	}
	check.That(t, w.calls.Load() == 0, "a bad request reached the store")
}

func TestForeignItemIsAnErrorNotAGuess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1})), 1)
	w.put("user#1", slot{"", "tokens", hour}.tat(), "1.5")
	if d, err := b.Reserve(ctx, w.request("user#1", Charge{Limit: tokens, Cost: 5000})); err == nil {
		t.Errorf("decision %+v on a fractional TAT", d)
	}
}

// An item of 4 limits and 8 open holds costs one write unit: it is below 1 KB.
func TestItemSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	spend := Limit{Name: "spend", Capacity: 2_000_000, Period: 24 * time.Hour, Return: OnSettle}
	linkedin := Limit{Name: "linkedin", Capacity: 10, Period: 24 * time.Hour, Return: OnExpiry}
	key := "user#auth0|507f1f77bcf86cd799439011"
	for range 8 {
		req := w.request(key, Charge{Limit: tokens, Cost: 600}, Charge{Limit: requests, Cost: 1}, Charge{Limit: spend, Cost: 100_000}, Charge{Limit: linkedin, Cost: 1})
		req.Note = make([]byte, MaxNote)
		w.admit(b, req)
	}
	if size := engine.ItemSize(w.item(key)); size > 1024 {
		t.Errorf("%d bytes", size)
	} else {
		t.Logf("%d bytes", size)
	}
}

func TestHoldEncoding(t *testing.T) {
	t.Parallel()
	h := hold{start: 1_800_000_000_123_456, expiry: 1_800_000_000_123_456 + 70_000_000, note: []byte("note"),
		owed: []owed{{slot{"", "cv", day}, 8_640_000_000}, {slot{"", "linkedin", hour}, 1}}}
	got, err := decodeHold(h.encode())
	check.Must(t, err == nil && got.start == h.start && got.expiry == h.expiry && string(got.note) == "note" && len(got.owed) == 2, "%+v, %v", got, err)
	r := got.owed[0]
	check.That(t, r.name == "cv" && r.period == day && r.inc == 8_640_000_000 && r.client == "", "%+v", r)
	dead, err := decodeHold(tombstone(1_800_000_000_000_000))
	check.That(t, err == nil && dead.dead && dead.expiry == 1_800_000_000_000_000+tombstoneLife, "%+v, %v", dead, err)
}

func FuzzDecodeHold(f *testing.F) {
	f.Add(tombstone(1))
	f.Add(hold{start: 1, expiry: 2_001, owed: []owed{{slot{"", "cv", day}, 5}}, note: []byte("n")}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHold(b)
		if err != nil {
			return
		}
		// Lengths may be written in more ways than one: what counts is that the
		// meaning survives.
		again, err := decodeHold(h.encode())
		check.Must(t, err == nil && again.start == h.start && again.expiry == h.expiry && slices.Equal(again.owed, h.owed) && string(again.note) == string(h.note),
			"%+v became %+v, %v", h, again, err)
	})
}

func TestStoreDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process(func(o *Options) { o.AttemptTimeout, o.ReserveTimeout = 50*time.Millisecond, 120*time.Millisecond })
	w.plan = func(int) faults.Fault { return faults.Hang }
	start := time.Now()
	if d, err := b.Reserve(ctx, w.request("user#1", Charge{Limit: tokens, Cost: 1})); !errors.Is(err, ErrUnavailable) || d.Reservation != nil {
		t.Errorf("decision %+v, error %v", d, err)
	}
	took := time.Since(start)
	check.That(t, took <= 5*time.Second, "answered after %s", took)
	check.That(t, w.item("user#1") == nil, "something was written")
}
