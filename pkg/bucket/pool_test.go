package bucket

import (
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// purse is a pool of a process whose monotonic clock is the world's.
func (w *world) purse(b *Buckets, ceiling int64, period time.Duration) *Pool {
	w.t.Helper()
	start := w.clock.now()
	p, err := b.NewPool("pool#all", ceiling, period, PoolOptions{Monotonic: func() time.Duration { return w.clock.now().Sub(start) }})
	check.OK(w.t, err)
	return p
}

func (w *world) setAside(p *Pool, amount int64) *PoolReservation {
	w.t.Helper()
	r, d, err := p.Reserve(ctx, amount)
	check.OK(w.t, err)
	check.Must(w.t, r != nil, "denied: %+v", d)
	return r
}

func (w *world) spend(r *PoolReservation, used int64) {
	w.t.Helper()
	check.OK(w.t, r.Settle(ctx, used))
}

func (w *world) poolLeft(p *Pool) int64 { return w.left(p.key, p.limit) }

const million = 1_000_000

func TestPoolSplitsItsCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	for _, period := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		for _, ceiling := range []int64{4, 1000, 20_000_000_000_000} {
			p := w.purse(b, ceiling, period)
			// b + r x (P + L + M) <= X, with r = b / refill.
			span := (period + 65*time.Second).Seconds()
			most := float64(p.limit.Capacity) * (1 + span/p.limit.Period.Seconds())
			if most > float64(ceiling) {
				t.Errorf("%d in %s: %g may be committed", ceiling, period, most)
			}
			if most < 0.95*float64(ceiling)-1 && ceiling > 4 {
				t.Errorf("%d in %s: only %g may be committed", ceiling, period, most)
			}
		}
	}
}

func TestPoolLendsLocally(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.purse(w.process(), 4000*million, time.Hour)
	var open []*PoolReservation
	for range 100 { // a busy process
		open = append(open, w.setAside(p, million))
	}
	if got := w.calls.Load(); got > 25 {
		t.Errorf("%d writes for 100 calls", got)
	}
	before := w.calls.Load()
	for _, r := range open {
		w.spend(r, million/2)
	}
	for range 50 { // what was not used is there to be used
		w.spend(w.setAside(p, million), million)
	}
	if got := w.calls.Load() - before; got > 2 {
		t.Errorf("%d writes while the lease had enough", got)
	}
}

func TestPoolDenies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	p := w.purse(b, 4000, time.Hour)
	check.Must(t, p.Burst() == 1000, "burst %d", p.Burst())
	r, d, err := p.Reserve(ctx, 1001)
	check.That(t, r == nil && err == nil && d.Impossible && w.calls.Load() == 0, "more than the burst: %+v, %v", d, err)
	w.setAside(p, 900)
	r, d, err = p.Reserve(ctx, 200)
	check.Must(t, r == nil && err == nil && d.Remaining == 100 && d.RetryAfter > 0, "denial %+v, %v", d, err)
	// Remembered for a second, and cheaper calls are judged by themselves.
	w.calls.Store(0)
	if r, _, _ := p.Reserve(ctx, 200); r != nil || w.calls.Load() != 0 {
		t.Errorf("asked %d times", w.calls.Load())
	}
	w.setAside(p, 100)
	// Honest: after the wait it fits.
	_, d, _ = p.Reserve(ctx, 200)
	w.clock.advance(d.RetryAfter)
	w.setAside(p, 200)
	if _, _, err := p.Reserve(ctx, 0); err == nil {
		t.Error("nothing was set aside")
	}
}

func TestIdleProcessGivesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.purse(w.process(), 4000, time.Hour)
	w.spend(w.setAside(p, 500), 100)
	// All but what was used and the margin of 5 s.
	want := 900 - 5*1000/int64(p.limit.Period.Seconds()) - 1
	got := w.poolLeft(p)
	check.That(t, got >= want && got <= 900, "%d of 1000 are left after 100 were used", got)
	w.spend(w.setAside(p, 500), 500)
	w.setAside(w.purse(w.process(), 4000, time.Hour), 390)
}

// A process that ends gives back what it kept for further calls, but nothing that a call
// has set aside, and nothing twice.
func TestReleaseGivesBackWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.purse(w.process(), 4000*million, time.Hour)
	var open []*PoolReservation
	for range 20 { // a busy process, which keeps its lease
		open = append(open, w.setAside(p, million))
	}
	for _, r := range open[1:] {
		w.spend(r, million/2)
	}
	kept := w.poolLeft(p)
	check.OK(t, p.Release(ctx))
	// Gone are the whole of the open call, what the others used, and at most the margin of
	// 5 s. Times are whole microseconds, each a unit or so.
	most := p.Burst() - million - 19*million/2 + 100
	least := most - 5*p.Burst()/int64(p.limit.Period.Seconds()) - 1
	got := w.poolLeft(p)
	check.That(t, kept < least && got >= least && got <= most, "%d are left, %d before, want %d to %d", got, kept, least, most)
	check.OK(t, p.Release(ctx))
	check.Equal(t, w.poolLeft(p), got, "left after another release")
	w.spend(open[0], million)
	check.That(t, w.poolLeft(p) <= most, "more is left than was not used: %d", w.poolLeft(p))
}

func TestOverrunOfAPoolIsChargedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.purse(w.process(), 4000, time.Hour)
	w.spend(w.setAside(p, 100), 700)
	check.Equal(t, w.poolLeft(p), 300, "of 1000 are left after 700 were used")
	w.spend(w.setAside(p, 100), 1700)
	check.Equal(t, w.poolLeft(p), 0, "are left in debt")
}

// A lease ends by whichever clock says so: a frozen container's monotonic clock
// stands still, and a wall clock may be set back.
func TestLeaseEndsByEitherClock(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		wall, mono time.Duration
		want       bool
	}{
		{"both young", 59 * time.Second, 59 * time.Second, true},
		{"frozen", time.Minute, time.Second, false},
		{"set back", -time.Hour, time.Minute, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			mono := time.Duration(0)
			p, err := w.process().NewPool("pool#all", 4000, time.Hour, PoolOptions{Monotonic: func() time.Duration { return mono }})
			check.OK(t, err)
			w.setAside(p, 10)
			p.mu.Lock()
			p.leases[0].balance = 100
			p.mu.Unlock()
			w.clock.advance(tc.wall)
			mono = tc.mono
			check.Equal(t, p.fromLease(10) != nil, tc.want, "a call may start")
		})
	}
}

// What comes back after its lease has ended goes to the pool, less what has been
// refilled, and never into a newer lease.
func TestMoneyOfAnEndedLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.purse(w.process(), 4000, time.Hour)
	old := w.setAside(p, 500)
	w.clock.advance(2 * time.Minute)
	newer := w.setAside(p, 10)
	w.spend(old, 0)
	p.mu.Lock()
	for _, l := range p.leases {
		check.That(t, (l == newer.lease || l.balance <= 0) && (l != newer.lease || l.balance <= 0), "lease with balance %d", l.balance)
	}
	p.mu.Unlock()
	refilled := int64(120 * 1000 / p.limit.Period.Seconds())
	got := w.poolLeft(p)
	check.That(t, got <= 990 && got >= 990-refilled/2, "%d of 1000 are left with 10 set aside", got)
}

// A reply that is lost on the way loses money until it is refilled, never makes any.
func TestPoolSendFails(t *testing.T) {
	t.Parallel()
	for _, f := range faults.Unsure {
		t.Run("draw, "+f.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.purse(w.process(quick), 4000, time.Hour)
			w.faulty(f)
			w.spend(w.setAside(p, 400), 400)
			check.OK(t, w.net.Deliver())
			got := w.poolLeft(p)
			check.That(t, got <= 600 && got >= 200, "%d of 1000 are left after 400 were spent", got)
		})
		t.Run("give back, "+f.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.purse(w.process(quick), 4000, time.Hour)
			r := w.setAside(p, 400)
			w.faulty(f)
			w.calls.Store(0)
			err := r.Settle(ctx, 100)
			check.That(t, err != nil, "a give-back without an answer is not told of")
			check.Equal(t, w.calls.Load(), 1, "sent … times")
			check.OK(t, w.net.Deliver())
			if got := w.poolLeft(p); got > 900 {
				t.Errorf("%d of 1000 are left after 100 were spent", got)
			}
			w.spend(r, 0) // settled once
			if got := w.poolLeft(p); got > 900 {
				t.Errorf("%d of 1000 are left after a second settle", got)
			}
		})
	}
	t.Run("store down", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		b := w.process(quick, func(o *Options) { o.ReserveTimeout = 300 * time.Millisecond })
		p := w.purse(b, 4000, time.Hour)
		w.plan = func(int) faults.Fault { return faults.Hang }
		if r, _, err := p.Reserve(ctx, 1); r != nil || err == nil {
			t.Error("money without the pool")
		}
	})
}

// What is left of a lease at its end waits to go back to the pool; it does not
// become part of a lease that still lives, where a hoarder could spend it once
// more after it was refilled.
func TestEndedLeaseIsNotLentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.purse(w.process(), 400_000, time.Hour)
	first := w.setAside(p, 300)
	w.clock.advance(30 * time.Second)
	p.mu.Lock()
	p.leases[0].balance = 500
	p.mu.Unlock()
	second := w.setAside(p, 700) // more than the first has left
	left := second.lease.balance
	w.clock.advance(31 * time.Second)
	r := p.fromLease(left + 1)
	check.That(t, r == nil, "a call started on the money of an ended lease")
	p.mu.Lock()
	check.That(t, len(p.backlog) == 1 && p.backlog[0].amount == 500 && p.backlog[0].lease == first.lease && second.lease.balance == left,
		"backlog %+v, the second lease has %d", p.backlog, second.lease.balance)
	p.mu.Unlock()
}

// An ordinary wrong guess costs nothing of the pool: of a pool that is full again, as
// of one that others have used, exactly what was drawn is missing afterwards.
func TestDrawIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, other := w.purse(w.process(), 4000, time.Hour), w.purse(w.process(), 4000, time.Hour)
	for _, tc := range []struct {
		name  string
		pause time.Duration
		first bool // another process draws before
	}{
		{"never used", 0, false},
		{"full again", 2 * time.Hour, false},
		{"full again, and used by another", 2 * time.Hour, true},
		{"full in 20 ms", 0, false},
	} {
		w.clock.advance(tc.pause)
		if tc.name == "full in 20 ms" {
			w.clock.advance((w.micros(p.key, p.slot().tat()) - w.now() - 20*milli).duration())
		}
		want := max(0, w.tatOf(p)-w.now())
		draw := func(p *Pool, amount int64) {
			inc, err := increment(amount, p.limit.Capacity, p.limit.period())
			check.OK(t, err)
			want += inc
			w.setAside(p, amount)
		}
		if tc.first {
			draw(other, 100)
		}
		draw(p, 200)
		check.Equal(t, w.tatOf(p)-w.now(), want, "%s: … µs of the pool are used", tc.name)
		p.mu.Lock()
		p.leases, p.recent = nil, nil
		p.mu.Unlock()
	}
}

// tatOf is the pool's TAT, 0 if there is none.
func (w *world) tatOf(p *Pool) micros {
	if w.item(p.key) == nil {
		return 0
	}
	return w.micros(p.key, p.slot().tat())
}

// After a burst of parallel calls that used nothing, in whatever order they end, of
// each lease at most what refilled while it was held stays committed.
func TestNothingStaysCommittedOfNothingUsed(t *testing.T) {
	t.Parallel()
	const processes, each, takes = 40, 20, 3 * time.Second
	for name, order := range map[string]func(int) int{
		"oldest first":   func(i int) int { return i },
		"youngest first": func(i int) int { return processes - 1 - i },
		"mixed":          func(i int) int { return i * 7 % processes },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var pools []*Pool
			var open []*PoolReservation
			for range processes {
				p := w.purse(w.process(), 4000, time.Hour)
				pools, open = append(pools, p), append(open, w.setAside(p, each))
			}
			w.clock.advance(takes)
			for i := range processes {
				w.spend(open[order(i)], 0)
			}
			// 3 s of refill of each, of which the rounding takes a unit.
			refilled := int64(takes.Seconds()*1000/pools[0].limit.Period.Seconds()) + 1
			left := w.poolLeft(pools[0])
			check.That(t, left >= 1000-processes*refilled, "%d of 1000 are left, want at least %d", left, 1000-processes*refilled)
		})
	}
}
