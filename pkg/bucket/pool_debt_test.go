package bucket

import (
	"math"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// inDebt is a pool of which 700 of 1000 more were used than there is.
func (w *world) inDebt() (p *Pool, older *PoolReservation) {
	w.t.Helper()
	p = w.purse(w.process(), 4000, time.Hour)
	older = w.setAside(w.purse(w.process(), 4000, time.Hour), 300)
	w.spend(w.setAside(p, 100), 1400)
	got := w.poolState(p)
	check.Must(w.t, got.Debt == 700 && got.Remaining == 0, "a debt of %d, and %d are left", got.Debt, got.Remaining)
	return p, older
}

func (w *world) poolState(p *Pool) PoolState {
	w.t.Helper()
	s, err := p.State(ctx)
	check.OK(w.t, err)
	return s
}

// Forgiving a debt leaves the pool empty and refilling, never full.
func TestForgive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, _ := w.inDebt()
	forgiven, now, err := p.Forgive(ctx)
	check.Must(t, err == nil && forgiven == 700 && now.Debt == 0 && now.Remaining == 0 && now.FullIn == p.limit.Period, "forgave %d, %+v, %v", forgiven, now, err)
	if r, d, err := p.Reserve(ctx, 10); r != nil || err != nil || d.RetryAfter <= 0 || d.RetryAfter > p.limit.Period/50 {
		t.Errorf("right afterwards: %+v, %+v, %v", r, d, err)
	}
	w.clock.advance(p.limit.Period / 50)
	w.setAside(p, 10)
}

// What is not in debt is left as it is: full, in use, or used up.
func TestForgiveWithoutADebt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.purse(w.process(), 4000, time.Hour)
	for _, amount := range []int64{0, 400, 600} {
		if amount > 0 {
			w.setAside(p, amount)
		}
		before := w.item(p.key)
		forgiven, now, err := p.Forgive(ctx)
		check.That(t, err == nil && forgiven == 0 && now.Debt == 0, "forgave %d, %+v, %v", forgiven, now, err)
		after := w.item(p.key)
		check.That(t, len(after) == len(before) && (amount <= 0 || w.poolLeft(p) <= 1000-amount), "the item was %v and is %v", before, after)
	}
}

// What an older lease did not use is not handed out once more after a debt was
// forgiven; a newer one gives back as ever.
func TestLeasesAcrossAForgiveness(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, older := w.inDebt()
	if _, _, err := p.Forgive(ctx); err != nil {
		t.Fatal(err)
	}
	w.spend(older, 0)
	check.Equal(t, w.poolLeft(p), 0, "an older lease handed out")
	w.clock.advance(p.limit.Period / 2) // 500 are refilled
	w.spend(w.setAside(p, 400), 0)
	got := w.poolLeft(p)
	check.That(t, got >= 490 && got <= 500, "%d of 500 are left with nothing used since", got)
}

func TestForgiveSendFails(t *testing.T) {
	t.Parallel()
	for _, f := range faults.Unsure {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p, _ := w.inDebt()
			w.faulty(faults.None, f) // after the read
			forgiven, _, err := p.Forgive(ctx)
			check.Must(t, err == nil && forgiven == 700, "forgave %d, %v", forgiven, err)
			// A new debt; a write that arrives late forgives none of it.
			w.clock.advance(10 * time.Second)
			check.OK(t, p.charge(ctx, 500))
			before := w.poolState(p).Debt
			check.OK(t, w.net.Deliver())
			got := w.poolState(p).Debt
			check.That(t, got == before && before != 0, "a debt of %d became %d", before, got)
		})
	}
}

// Whatever is said to have been used, figures and waits stay in their range.
func TestAbsurdDebt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.purse(w.process(), 4000, time.Hour)
	for range 3 {
		check.OK(t, p.charge(ctx, math.MaxInt64))
	}
	check.OK(t, p.charge(ctx, math.MaxInt64/2))
	longest := longestDebt.duration() + p.limit.Period
	s := w.poolState(p)
	check.That(t, s.Debt > 0 && s.Remaining == 0 && s.FullIn > 0 && s.FullIn <= longest && s.NextIn > 0 && s.NextIn <= longest, "state %+v", s)
	_, d, err := p.Reserve(ctx, 1)
	check.That(t, err == nil && d.RetryAfter > 0 && d.RetryAfter <= longest && d.Remaining == 0, "denial %+v, %v", d, err)
	if used := p.Used(); used < 1 || math.IsInf(used, 0) {
		t.Errorf("used %g", used)
	}
	// The item outlives its debt, or the pool would be full again when it is gone.
	expires := w.micros(p.key, attrExpires) * second
	check.That(t, expires >= w.micros(p.key, p.slot().tat()), "the item expires before its debt is refilled")
	if _, now, err := p.Forgive(ctx); err != nil || now.Debt != 0 || now.FullIn != p.limit.Period {
		t.Errorf("forgiven: %+v, %v", now, err)
	}
}

// A settle with absurd figures harms nobody but the pool.
func TestAbsurdUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, used := range []int64{math.MinInt64, -1, math.MaxInt64 - 1, math.MaxInt64} {
		p := w.purse(w.process(), MaxCeiling, time.Hour)
		w.spend(w.setAside(p, p.Burst()/4), used)
		w.clock.advance(400 * 24 * time.Hour)
		r := w.setAside(p, p.Burst()) // refilled, whatever it was
		w.spend(r, 0)
		w.clock.advance(time.Hour)
	}
}

// Marks of forgiveness only grow: one by a clock that is behind is told from the
// earlier one, so that leases from between them hand out nothing.
func TestForgiveByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, _ := w.inDebt()
	if _, _, err := p.Forgive(ctx); err != nil {
		t.Fatal(err)
	}
	first := w.micros(p.key, p.slot().cleared())
	check.OK(t, p.charge(ctx, 500))
	behind := w.purse(w.process(func(o *Options) { o.Now = func() time.Time { return w.clock.now().Add(-2 * time.Second) } }), 4000, time.Hour)
	if forgiven, now, err := behind.Forgive(ctx); err != nil || forgiven == 0 || now.Debt != 0 {
		t.Fatalf("forgave %d, %+v, %v", forgiven, now, err)
	}
	second := w.micros(p.key, p.slot().cleared())
	check.That(t, second > first, "marked %d after %d", second, first)
}
