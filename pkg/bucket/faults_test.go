package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// quick makes a process that gives up soon on a hanging store.
func quick(o *Options) { o.AttemptTimeout, o.SettleTimeout = 400*time.Millisecond, 4*time.Second }

// settleAll ends what is left of a scenario: late requests arrive, every hold and
// tombstone expires, and another process comes by.
func (w *world) comeBackLater(key string) {
	w.t.Helper()
	w.plan, w.net.Plan = nil, nil
	check.OK(w.t, w.net.Deliver())
	w.clock.advance(10 * time.Minute)
	later := Limit{Name: "later", Capacity: 1, Period: time.Second}
	for range 2 { // a settle sweeps what its reserve came across
		w.settle(w.admit(w.process(), w.request(key, Charge{Limit: later, Cost: 1})), 1)
		w.clock.advance(time.Second)
	}
	for attr := range w.item(key) {
		check.That(w.t, !strings.HasPrefix(attr, holdPrefix), "%s is still there", attr)
	}
	check.Equal(w.t, w.number(key, attrOpen), 0, "calls still count as open")
}

// One send of the reserve fails; the next gets through. The call is charged once,
// and a late arrival of the first changes nothing, then or later.
func TestReserveSendFails(t *testing.T) {
	t.Parallel()
	run := func(f faults.Fault, wantTombstone bool) {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.faulty(f)
			r := w.admit(w.process(quick), w.request("user#1", Charge{Limit: tokens, Cost: 1000}, Charge{Limit: requests, Cost: 1}, Charge{Limit: quota, Cost: 1}))
			w.wantOpen("user#1", 1)
			check.That(t, w.left("user#1", tokens) == 4000 && w.left("user#1", requests) == 19 && w.left("user#1", quota) == 9, "not charged once")
			w.settle(r, 250, 0, 0)
			w.wantOpen("user#1", 0)
			charged := func() {
				t.Helper()
				check.Equal(t, w.left("user#1", tokens), 4750, "tokens: remain")
				check.Equal(t, w.left("user#1", quota), 10, "quota: remain")
			}
			charged()
			check.Equal(t, w.item("user#1").holdBytes(r.ID()) != nil, wantTombstone, "tombstone")
			check.OK(t, w.net.Deliver())
			w.wantOpen("user#1", 0)
			charged()
			w.comeBackLater("user#1")
		})
	}
	for _, f := range faults.Unsure {
		run(f, true)
	}
	run(faults.Throttled, false)
}

// No send of the reserve is answered: the caller hears so in bounded time, and
// what may have applied is undone, at once where the store can be reached again,
// else when the hold expires.
func TestReserveUnanswered(t *testing.T) {
	t.Parallel()
	for _, f := range faults.Unsure {
		for _, reachableAfter := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, then reachable %t", f, reachableAfter), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				b := w.process(quick, func(o *Options) { o.ReserveTimeout = 500 * time.Millisecond })
				w.net.Plan = func(_ string, body []byte) faults.Fault {
					// What follows the reserve sets no limit.
					if reachableAfter && !bytes.Contains(body, []byte("if_not_exists")) {
						return faults.None
					}
					return f
				}
				start := time.Now()
				d, err := b.Reserve(ctx, w.request("user#1", Charge{Limit: tokens, Cost: 1000}, Charge{Limit: requests, Cost: 1}, Charge{Limit: quota, Cost: 1}))
				check.Must(t, errors.Is(err, ErrUnavailable) && d.Reservation == nil, "decision %+v, error %v", d, err)
				took := time.Since(start)
				check.That(t, took <= 10*time.Second, "answered after %s", took)
				check.OK(t, w.net.Deliver())
				switch left := w.left("user#1", tokens); {
				case reachableAfter && left != 5000:
					t.Errorf("tokens: %d remain, want 5000", left)
				case left != 5000 && left != 4000:
					t.Errorf("tokens: %d remain, charged more than once", left)
				}
				w.comeBackLater("user#1")
				check.Equal(t, w.left("user#1", quota), 10, "quota: remain in the end")
			})
		}
	}
}

// A send is lost, the next is answered with a denial. Should the lost one arrive
// after all, it must not charge for a call that was denied.
func TestDeniedAfterAnUnansweredSend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here, there := w.process(), w.process()
	open := w.admit(there, w.request("user#1", Charge{Limit: tokens, Cost: 5000}))
	w.faulty(faults.LateRequest)
	w.deny(here, w.request("user#1", Charge{Limit: tokens, Cost: 1000}), "tokens")
	w.settle(open, 0)
	check.OK(t, w.net.Deliver())
	check.Equal(t, w.left("user#1", tokens), 5000, "remain, the denied call was charged")
	w.wantOpen("user#1", 0)
	w.comeBackLater("user#1")
}

// A send of the settle fails; the next gets through: credited once.
func TestSettleSendFails(t *testing.T) {
	t.Parallel()
	for _, f := range faults.All {
		for _, reserveLost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reserve reply lost %t", f, reserveLost), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				if reserveLost { // then the settle leaves a tombstone, which a repeated send must not take for the hold
					w.faulty(faults.LostReply)
				}
				r := w.admit(w.process(quick), w.request("user#1", Charge{Limit: tokens, Cost: 1000}, Charge{Limit: quota, Cost: 1}))
				w.faulty(f)
				w.settle(r, 250, 0)
				charged := func() {
					t.Helper()
					w.wantOpen("user#1", 0)
					check.Equal(t, w.micros("user#1", "g_tokens_3600"), 750*720_000, "credited … µs of tokens")
					check.That(t, w.left("user#1", tokens) == 4750 && w.left("user#1", quota) == 10, "not settled once")
				}
				charged()
				check.OK(t, w.net.Deliver())
				charged()
				w.comeBackLater("user#1")
			})
		}
	}
}

// The settle never gets through, or the process dies before it: the hold expires,
// the quota comes back, tokens and requests stay charged.
func TestSettleNeverArrives(t *testing.T) {
	t.Parallel()
	for _, f := range faults.Unsure {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.admit(w.process(quick, func(o *Options) { o.SettleTimeout = 500 * time.Millisecond }),
				w.request("user#1", Charge{Limit: tokens, Cost: 1000}, Charge{Limit: requests, Cost: 1}, Charge{Limit: quota, Cost: 5}))
			w.plan = func(int) faults.Fault { return f }
			err := r.Settle(ctx, []int64{250, 0, 0})
			// If a first send applied and a later one was answered, it is known to be
			// settled; if none is answered it is not.
			check.Must(t, errors.Is(err, ErrUnavailable), "error %v", err)
			w.plan = nil
			applied := w.number("user#1", attrOpen) == 0
			w.comeBackLater("user#1")
			check.Equal(t, w.left("user#1", quota), 10, "quota: remain")
			check.That(t, applied || len(w.abandoned) != 0 || w.micros("user#1", "g_tokens_3600") != 0, "nobody was told of the abandoned call")
			// A late repetition by the owner changes nothing any more.
			before := w.micros("user#1", "g_cv_86400")
			w.settle(r, 250, 0, 0)
			got := w.micros("user#1", "g_cv_86400")
			check.That(t, got == before, "the quota came back twice")
		})
	}
}

// A sweep's reply is lost: what it gave back is given back once.
func TestSweepSendFails(t *testing.T) {
	t.Parallel()
	for _, f := range faults.Unsure {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.admit(w.process(), w.request("user#1", Charge{Limit: quota, Cost: 10}))
			w.clock.advance(2 * time.Minute)
			w.faulty(faults.None, f) // the reserve that finds it, the sweep
			w.admit(w.process(quick), w.request("user#1", Charge{Limit: quota, Cost: 10}))
			w.wantOpen("user#1", 1)
			check.Equal(t, w.micros("user#1", "g_cv_86400"), day-120_000_000, "credited … µs")
			check.OK(t, w.net.Deliver())
			w.wantOpen("user#1", 1)
			check.Equal(t, w.micros("user#1", "g_cv_86400"), day-120_000_000, "credited … µs in the end")
		})
	}
}

// The sweep and the late settle of one hold meet: one of them acts.
func TestSweepMeetsSettle(t *testing.T) {
	t.Parallel()
	for range 20 {
		w := newWorld(t)
		r := w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 1000}, Charge{Limit: quota, Cost: 10}))
		w.clock.advance(2 * time.Minute)
		done := make(chan error, 2)
		go func() { done <- r.Settle(ctx, []int64{1000, 0}) }()
		go func() {
			_, err := w.process().Reserve(ctx, w.request("user#1", Charge{Limit: quota, Cost: 10}))
			done <- err
		}()
		for range 2 {
			check.OK(t, <-done)
		}
		got := w.micros("user#1", "g_cv_86400")
		check.Must(t, got == day-120_000_000, "credited %d µs, want %d", got, day-120_000_000)
		w.comeBackLater("user#1")
	}
}

// A cancelled request takes its reserve back.
func TestReserveCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, leave := context.WithCancel(ctx)
	w.faulty(faults.HangReply)
	b := w.process()
	arrived := make(chan struct{})
	plan := w.plan
	w.plan = func(n int) faults.Fault {
		if n == 1 {
			close(arrived)
		}
		return plan(n)
	}
	go func() { <-arrived; w.awaitItem("user#1"); leave() }()
	if _, err := b.Reserve(gone, w.request("user#1", Charge{Limit: tokens, Cost: 1000})); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	w.wantOpen("user#1", 0)
	check.Equal(t, w.left("user#1", tokens), 5000, "remain")
}
