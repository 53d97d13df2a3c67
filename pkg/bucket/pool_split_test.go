package bucket

import (
	"math"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestCeiling(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ceiling             Ceiling
		burst, hour, minute int64
	}{
		{Ceiling{4, time.Hour}, 1, 4, 2},
		{Ceiling{4000, time.Hour}, 1000, 4000, 1103},
		{Ceiling{4000, time.Minute}, 1000, 88960, 4000},
		{Ceiling{MaxCeiling, time.Hour}, math.MaxInt64 / 4, math.MaxInt64, 2541775104290129213},
		{Ceiling{MaxCeiling, time.Second}, math.MaxInt64 / 4, math.MaxInt64, math.MaxInt64},
	} {
		check.Equal(t, tc.ceiling.Burst(), tc.burst, "%+v: burst", tc.ceiling)
		check.Equal(t, tc.ceiling.Within(time.Hour), tc.hour, "%+v: in an hour", tc.ceiling)
		check.Equal(t, tc.ceiling.Within(time.Minute), tc.minute, "%+v: in a minute", tc.ceiling)
	}
	for cost, want := range map[int64]int64{0: 4, 1: 4, 2: 8, math.MaxInt64 / 4: math.MaxInt64 - 3, math.MaxInt64/4 + 1: MaxCeiling, math.MaxInt64: MaxCeiling} {
		if got := CeilingFor(cost); got != want || cost <= math.MaxInt64/4 && (Ceiling{got, time.Hour}).Burst() < cost {
			t.Errorf("a call of %d needs a ceiling of %d, want %d", cost, got, want)
		}
	}
}

// At both ends of their range pools are made, draw, deny and refill.
func TestPoolsAtTheEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process(func(o *Options) { o.LongestPeriod = 367 * 24 * time.Hour })
	for _, ceiling := range []int64{MinCeiling, 1 << 53, 1<<53 + 1, 1_000_000_000_000_000_000, MaxCeiling} {
		for _, period := range []time.Duration{time.Second, time.Hour, 366 * 24 * time.Hour} {
			w.clock.advance(400 * 24 * time.Hour)
			p := w.purse(b, ceiling, period)
			w.spend(w.setAside(p, p.Burst()), p.Burst())
			r, d, err := p.Reserve(ctx, max(1, p.Burst()/1000)) // beyond the tolerance
			check.That(t, r == nil && err == nil && d.RetryAfter > 0 && d.Remaining < d.Requested,
				"%d in %s: beyond the burst: %+v, %+v, %v", ceiling, period, r, d, err)
			w.clock.advance(p.limit.Period)
			w.spend(w.setAside(p, p.Burst()), 0)
		}
	}
	for _, c := range []Ceiling{{MinCeiling - 1, time.Hour}, {-1, time.Hour}, {math.MinInt64, time.Hour}, {100, 0}, {100, -time.Hour}, {100, 1500 * time.Millisecond}} {
		if _, err := b.NewPool("pool#all", c.Amount, c.Period, PoolOptions{}); err == nil {
			t.Errorf("%+v is taken for a ceiling", c)
		}
	}
}
