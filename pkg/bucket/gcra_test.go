package bucket

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	hour = 60 * 60 * second
	day  = 24 * hour
)

// drawTime draws a time of a range.
func drawTime(t *rapid.T, name string, least, most micros) micros {
	return micros(rapid.Int64Range(int64(least), int64(most)).Draw(t, name))
}

func TestIncrement(t *testing.T) {
	for _, tc := range []struct {
		name           string
		cost, capacity int64
		period, want   micros // want 0: an error
	}{
		{"one of 5000 an hour", 1, 5000, hour, 720_000},
		{"all of it", 5000, 5000, hour, hour},
		{"rounded up", 1, 7, hour, 514_285_715},
		{"$0.80 of $2 a day overflows 64 bits on the way", 800_000, 2_000_000, day, day * 4 / 10},
		{"more than the capacity", 9000, 5000, hour, hour * 9 / 5},
		{"nothing", 0, 5000, hour, 0},
		{"negative", -1, 5000, hour, 0},
		{"no capacity", 1, 0, hour, 0},
		{"no period", 1, 1, 0, 0},
		{"quotient beyond 64 bits", math.MaxInt64, 1, hour, 0},
		{"quotient beyond a thousand years", 1 << 30, 1, hour, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := increment(tc.cost, tc.capacity, tc.period)
			check.That(t, got == tc.want && (err != nil) == (tc.want == 0), "increment = %d, %v, want %d", got, err, tc.want)
		})
	}
}

func TestIncrementIsExactlyRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Int64Range(1, 1<<40).Draw(t, "cost")
		capacity := rapid.Int64Range(1, 1<<50).Draw(t, "capacity")
		period := drawTime(t, "period", second, 366*day)
		want := new(big.Int).Mul(big.NewInt(cost), big.NewInt(int64(period)))
		want.Add(want, big.NewInt(capacity-1)).Div(want, big.NewInt(capacity))
		got, err := increment(cost, capacity, period)
		if want.Cmp(big.NewInt(int64(maxIncrement))) > 0 {
			check.Must(t, err != nil, "%d accepted", want)
			return
		}
		check.Must(t, err == nil && want.Cmp(big.NewInt(int64(got))) == 0, "increment = %d, %v, want %d", got, err, want)
	})
}

// The last unit of a capacity that does not divide its period fits.
func TestWholeCapacityFitsAtOnce(t *testing.T) {
	for _, capacity := range []int64{1, 2, 3, 7, 11, 13, 20, 49, 60, 97, 100} {
		inc, err := increment(1, capacity, hour)
		check.OK(t, err)
		var tat micros
		var admitted int64
		const now = 1_800_000_000_000_000
		for fits(tat, now, inc, hour) {
			tat = max(tat, now) + inc
			admitted++
		}
		check.That(t, admitted == capacity, "capacity %d: %d admitted at one instant", capacity, admitted)
	}
}

// What remains fits, and one more does not; what does not fit fits after its
// wait, and not a microsecond sooner.
func TestRemainingAndWaitAreHonest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 1<<40).Draw(t, "capacity")
		period := drawTime(t, "period", second, 366*day)
		now := drawTime(t, "now", 1<<50, 1<<51)
		tat := now + drawTime(t, "ahead", -period, 2*period)
		left := remaining(tat, now, capacity, period)
		check.Must(t, left >= 0 && left <= capacity, "remaining %d of %d", left, capacity)
		if left > 0 {
			inc, _ := increment(left, capacity, period)
			check.Must(t, fits(tat, now, inc, period), "%d remain but do not fit", left)
		}
		if left < capacity {
			inc, err := increment(left+1, capacity, period)
			check.Must(t, err != nil || !fits(tat, now, inc, period), "%d remain but %d fit", left, left+1)
		}
		cost := rapid.Int64Range(1, capacity).Draw(t, "cost")
		inc, _ := increment(cost, capacity, period)
		d := wait(tat, now, inc, period)
		if (d == 0) != fits(tat, now, inc, period) {
			t.Fatalf("wait %d but fits is %t", d, fits(tat, now, inc, period))
		}
		check.Must(t, fits(tat, now+d, inc, period), "does not fit after its wait of %d", d)
		check.Must(t, d <= 0 || !fits(tat, now+d-1, inc, period), "fits before its wait of %d is over", d)
	})
}

// A status tells its own future: what it will be, and when a cost fits in it.
func TestStatusKnowsItsFuture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{Name: "l", Capacity: rapid.Int64Range(1, 1<<40).Draw(t, "capacity"), Period: drawTime(t, "period", second, 366*day).duration()}
		now := drawTime(t, "now", 1<<50, 1<<51)
		tat := now + drawTime(t, "ahead", -l.period(), 2*l.period())
		s, d := l.status(tat, now), drawTime(t, "later", 0, 2*l.period())
		check.Must(t, s.After(d.duration()) == l.status(tat, now+d) && s.After(-1) == s, "%+v, %d µs later: %+v", s, d, s.After(d.duration()))
		cost := rapid.Int64Range(1, 2*l.Capacity).Draw(t, "cost")
		in := s.FitsIn(cost)
		check.Must(t, s.After(in).Remaining >= min(cost, l.Capacity), "%d does not fit after %s", cost, in)
		check.Must(t, in == 0 || s.After(in-time.Microsecond).Remaining < cost, "%d fits before %s", cost, in)
		check.Must(t, s.FitsIn(1) == s.NextIn, "1 fits in %s, the next in %s", s.FitsIn(1), s.NextIn)
	})
}

// A timeline in a bucket of 100 that refills one a second, in which a plainer
// rule gives back what the refill or another settle has given back already.
func TestRefundCountsRefillAndOtherSettles(t *testing.T) {
	const period = 100 * second
	t.Run("refill", func(t *testing.T) {
		// At 0 a call reserves all 100: the TAT is 100 s. At 50 s, 50 have been
		// refilled and another call reserves them: the TAT is 150 s. Then the first
		// settles to nothing: of its 100, 50 have come back already.
		got := refund(100*second, 100*second, 0, 0, 50*second)
		check.That(t, got == 50*second, "refund = %d s, want 50", got/second)
	})
	t.Run("another settle", func(t *testing.T) {
		// At 0 two calls reserve 50 each (TATs 50 s and 100 s) and the first settles
		// to nothing at once. At 30 s a third reserves 50: the TAT is 100 s. Then the
		// second settles to nothing: it is owed 20 s, as 30 have been refilled.
		var tat, credits micros
		tat = 50 * second
		after1 := tat
		tat += 50 * second
		after2 := tat
		c := refund(50*second, after1, 0, credits, 0)
		tat, credits = tat-c, credits+c
		tat = max(tat, 30*second) + 50*second
		c = refund(50*second, after2, beneath(after2, 50*second, 0), credits, 30*second)
		tat -= c
		check.That(t, c == 20*second, "refund = %d s, want 20", c/second)
		check.Equal(t, remaining(tat, 30*second, 100, period), 50, "remain beside the third call's 50 of 100")
	})
	t.Run("the younger first", func(t *testing.T) {
		// Two calls reserve 40 each at 0. The younger settles to nothing, then the
		// older: what the younger was given lay above it and takes nothing from it.
		got := refund(40*second, 40*second, 0, 40*second, 0)
		check.That(t, got == 40*second, "refund = %d s, want 40", got/second)
	})
}

// A refund holds for exactly as much as it says that others may have been given.
func TestRefundHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := drawTime(t, "now", 1<<50, 1<<51)
		inc := drawTime(t, "inc", 1, 1001)
		below := drawTime(t, "below", 0, 1000)
		after := now - drawTime(t, "age", 0, 1000) + below + inc
		unused := drawTime(t, "unused", 0, inc)
		back := refund(unused, after, below, drawTime(t, "given", 0, 3000), now)
		if back == 0 {
			return // nothing is written
		}
		most, bounded := refundHolds(back, after, below, now)
		for given := range micros(3000) {
			holds := back <= refund(unused, after, below, given, now)
			check.Must(t, holds == (!bounded || given <= most),
				"%d when others were given %d: holds is %t, said to hold up to %d (bounded %t)", back, given, holds, most, bounded)
		}
	})
}

type use struct {
	at     micros
	amount int64
}

// excess is by how much some window saw more use than capacity + rate x window.
func excess(used []*use, capacity int64, period micros) (worst int64) {
	for _, from := range used {
		for _, to := range used {
			if to.at < from.at {
				continue
			}
			var sum int64
			for _, u := range used {
				if from.at <= u.at && u.at <= to.at {
					sum += u.amount
				}
			}
			allowed := capacity + int64(to.at-from.at+tolerance)*capacity/int64(period)
			worst = max(worst, sum-allowed)
		}
	}
	return worst
}
