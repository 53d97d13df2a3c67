package bucket

import (
	"strconv"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// A wrong guess costs a round trip and nothing else: what remains is told to the unit,
// and the last of a small quota is to be had at once.
func TestWrongGuessCostsNoQuota(t *testing.T) {
	t.Parallel()
	three := Limit{Name: "cv", Capacity: 3, Period: 24 * time.Hour, Return: OnExpiry}
	all := func(t *testing.T, w *world, b *Buckets) {
		t.Helper()
		w.calls.Store(0)
		for want := int64(2); want >= 0; want-- {
			d, err := b.Reserve(ctx, w.request("user#1", Charge{Limit: three, Cost: 1}))
			check.Must(t, err == nil && d.Reservation != nil, "error %v, denials %+v", err, d.Denials)
			check.Equal(t, d.Limits[0].Remaining, want, "remain")
		}
		check.Equal(t, w.calls.Load(), 4, "round trips for 3 calls, of which the first guesses wrong")
		w.deny(b, w.request("user#1", Charge{Limit: three, Cost: 1}), "cv")
	}
	t.Run("after a clear", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		b := w.process()
		w.settle(w.admit(b, w.request("user#1", Charge{Limit: three, Cost: 2})), 2)
		check.OK(t, w.process().Clear(ctx, "user#1", three))
		all(t, w, b)
	})
	t.Run("the next day in another process", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.settle(w.admit(w.process(), w.request("user#1", Charge{Limit: three, Cost: 2})), 2)
		w.clock.advance(24 * time.Hour)
		all(t, w, w.process())
	})
}

// Only from the third try on, when others are seen to move the limit, is it set afresh
// from ahead of now, by no more than fits.
func TestGuessIsExactUntilContended(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	c := charge{inc: 10, bound: hour}
	for _, tc := range []struct {
		tat       micros
		contended bool
		want      form
	}{
		{0, false, form{base: now}},
		{now - 1, false, form{base: now}},
		{now, false, form{base: now}},
		{now + 1, false, form{running: true}},
		{now + near, false, form{running: true}},
		{0, true, form{base: now + slack}},
		{now + near, true, form{base: now + slack}},
		{now + near + 1, true, form{running: true}},
	} {
		got := c.guess(tc.tat, now, tc.contended)
		check.That(t, got == tc.want, "TAT %d, contended %t: %+v, want %+v, at %d", tc.tat-now, tc.contended, got, tc.want, int64(now))
	}
	// Near the whole of a limit there is no room for slack; but a base before the TAT
	// would never apply.
	c.inc = hour - 20
	for tat, want := range map[micros]micros{now: now + 20, now + 20 + tolerance: now + 20 + tolerance} {
		got := c.guess(tat, now, true)
		check.That(t, got == (form{base: want}), "TAT %d: %+v, want a base of %d", tat-now, got, want)
	}
}

// Debt is bounded, however often the absurd is charged: the limit stays readable, its
// times are true and positive, and a clear ends it.
func TestDebtIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here, there := w.process(), w.process()
	yearly := Limit{Name: "spend", Capacity: 1, Period: 24 * time.Hour, Return: OnSettle}
	var open []*Reservation
	for i := range 8 {
		b := here
		if i%2 == 1 {
			b = there
		}
		open = append(open, w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1})))
	}
	spender := w.admit(here, w.request("user#2", Charge{Limit: yearly, Cost: 1}))
	w.settle(spender, 1<<62)
	const most = time.Duration(maxIncrement) * time.Microsecond
	for i, r := range open {
		w.settle(r, 1<<62)
		s, err := there.Peek(ctx, "user#1")
		check.OK(t, err)
		l := s.Limit(tokens)
		check.Must(t, l.FullIn == most && l.NextIn > 0 && l.NextIn <= most && l.Remaining == 0, "after %d overruns: %+v, want full in %s", i+1, l, most)
		d := w.deny(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 1}), "tokens")
		check.Must(t, d.RetryAfter > 0 && d.Remaining == 0, "denial %+v", d)
		w.clock.advance(time.Second)
	}
	// A little more on top of the most.
	w.wantOpen("user#1", 0)
	check.OK(t, here.Clear(ctx, "user#1", tokens))
	w.settle(w.admit(here, w.request("user#1", Charge{Limit: tokens, Cost: 5000})), 5000)
}

// What an older version let a debt become is shown as the longest time there is.
func TestForeignDebtIsShownAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	r := w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}))
	w.put("user#1", slot{"", "tokens", hour}.tat(), "9000000000000000000")
	d := w.deny(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 1}), "tokens")
	check.That(t, d.RetryAfter >= 290*365*24*time.Hour, "denial %+v", d)
	w.settle(r, 1<<62)
	check.Equal(t, w.micros("user#1", slot{"", "tokens", hour}.tat())-w.now(), maxIncrement, "the TAT is … µs ahead")
}

// An item lives until its debts are paid, or its TTL would forgive them.
func TestItemOutlivesItsDebts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	first := w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}))
	other := w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1}, Charge{Limit: quota, Cost: 1}))
	w.settle(first, 5000*100)
	w.settle(other, 5000*100, 2)
	full := w.micros("user#1", slot{"", "tokens", hour}.tat())
	ahead := full - w.now()
	check.That(t, ahead == 200*hour, "the debt is %d h", ahead/hour)
	got := w.micros("user#1", attrExpires)
	check.That(t, got >= full/second, "expires %d s before the debt is paid", full/second-got)
}

// A quota of the identity itself comes back with a client's lost call as the client's
// own does.
func TestSweepReturnsTheIdentitysOwnQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	req := w.visit(clientNumber(1), 100)
	req.Charges = append(req.Charges, Charge{Limit: quota, Cost: 10}, Charge{Limit: quota, Cost: 10, OfClient: true})
	w.admit(b, req)
	w.clock.advance(2 * time.Minute)
	w.settle(w.admit(w.process(), w.visit(clientNumber(2), 1)), 1, 1)
	w.wantOpen("net#1", 0)
	for _, client := range []string{"", clientNumber(1)} {
		if got, want := w.micros("net#1", slot{client, "cv", day}.credits()), day-120*second; got != want {
			t.Errorf("client %q: %d µs came back, want %d", client, got, want)
		}
	}
}

// The write of an overrun applies only to the state that it is for: debt is neither lost
// in the past, nor does it come back after a clear, nor grow beyond its bound.
func TestOverrunAppliesOnlyToItsState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	now := w.now()
	const most = maxIncrement
	for _, tc := range []struct {
		believed, stored, inc micros // TATs from now
		want                  micros // the TAT then; -1: it does not apply
	}{
		{-5, -5, 100, 100},
		{-5, 5, 100, -1},
		{5, 5, 100, 105},
		{5, 50, 100, 150},
		{5, -5, 100, -1},
		{5, most - 100, 100, most},
		{5, most - 99, 100, -1},
		{most - 99, most - 99, 100, most},
		{most, most, 100, most},
		{most, -5, 100, -1},
		{most, 5, 100, -1},
		{-5, -5, most, most},
	} {
		w.put("user#1", "t_x_60", strconv.FormatInt(int64(now+tc.stored), 10))
		u := newUpdate()
		u.overrun(slot{"", "x", 60 * second}, tc.inc, now+tc.believed, now, now+most)
		got, err := b.write(ctx, "user#1", u)
		check.OK(t, err)
		if want := tc.want >= 0; got.applied != want {
			t.Errorf("%+v: applied %t", tc, got.applied)
		} else if tat := w.micros("user#1", "t_x_60") - now; want && tat != tc.want || !want && tat != tc.stored {
			t.Errorf("%+v: the TAT is %d from now", tc, tat)
		}
	}
}
