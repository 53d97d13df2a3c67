package limits

import (
	"math"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Money is kept in pico-dollars and shown in micro-dollars: what is left is rounded
// down, what is asked up, and a wait is until a whole one fits.
func TestMoneyIsShownInMicroDollars(t *testing.T) {
	t.Parallel()
	l := newLimit(&policy.Limit{Name: "spend", Unit: policy.USDMicros, Capacity: 10_000, Period: 1_000_000 * time.Second}, bucket.OnSettle, Own)
	check.Equal(t, l.Capacity, 10_000_000_000, "the bucket holds")
	for n, want := range map[int64][2]int64{0: {0, 0}, 1: {0, 1}, 999_999: {0, 1}, 1_000_000: {1, 1}, 1_000_001: {1, 2}, 10_000_000_000: {10_000, 10_000}} {
		check.Equal(t, [2]int64{l.Shown(n), l.Asked(n)}, want, "%d pico-dollars", n)
	}
	// A micro-dollar comes back in 100 s.
	view := ViewOf(l, bucket.Status{Limit: l.Limit, Remaining: 400_000, FullIn: l.Period - 40*time.Second})
	if want := (View{"spend", policy.USDMicros, 10_000, 1_000_000, Left{0, 999_960, 60}}); view != want {
		t.Errorf("%+v, want %+v", view, want)
	}
	view = ViewOf(l, bucket.Status{Limit: l.Limit, Remaining: 1_000_000, FullIn: l.Period - 100*time.Second})
	if want := (Left{1, 999_900, 0}); view.Left != want {
		t.Errorf("%+v, want %+v", view.Left, want)
	}
	got := LeftOf(l, bucket.Status{Limit: l.Limit, FullIn: math.MaxInt64, NextIn: math.MaxInt64})
	check.That(t, got.Reset > 0 && got.RetryAfter > 0, "waits without end come out as %+v", got)
	tokens := newLimit(&policy.Limit{Name: "tokens", Unit: policy.Tokens, Capacity: 7, Period: time.Hour}, bucket.OnSettle, Own)
	check.That(t, tokens.Capacity == 7 && tokens.Shown(3) == 3 && tokens.Asked(3) == 3, "tokens are counted otherwise: %+v", tokens)
	// The largest that a policy may have.
	most := newLimit(&policy.Limit{Name: "spend", Unit: policy.USDMicros, Capacity: 1_000_000_000_000, Period: 366 * 24 * time.Hour}, bucket.OnSettle, Own)
	err := most.Validate()
	check.That(t, err == nil && most.Shown(most.Capacity) == 1_000_000_000_000, "%+v, %v", most, err)
}

// More than is shown to be left comes in whole units of the limit, and nothing of a pass
// after its end.
func TestMoreIn(t *testing.T) {
	t.Parallel()
	spend := newLimit(&policy.Limit{Name: "spend", Unit: policy.USDMicros, Capacity: 10_000, Period: 1_000_000 * time.Second}, bucket.OnSettle, Own)
	tokens := newLimit(&policy.Limit{Name: "tokens", Unit: policy.Tokens, Capacity: 60, Period: time.Minute}, bucket.OnSettle, Own)
	calls := tokens
	calls.Life = 20 * time.Second
	for name, tt := range map[string]struct {
		of                 Limit
		used, ends         time.Duration // how much of the period is used; how long the pass still lives
		remaining          int64
		more, full, window time.Duration
	}{
		"full":                         {tokens, 0, 0, 60, 0, 0, time.Minute},
		"one is used":                  {tokens, time.Second, 0, 59, time.Second, time.Second, time.Minute},
		"part of the next is there":    {tokens, 2300 * time.Millisecond, 0, 57, 300 * time.Millisecond, 2300 * time.Millisecond, time.Minute},
		"nothing is left":              {tokens, time.Minute, 0, 0, time.Second, time.Minute, time.Minute},
		"debt":                         {tokens, 70 * time.Second, 0, 0, 11 * time.Second, 70 * time.Second, time.Minute},
		"part of a micro-dollar":       {spend, 150 * time.Second, 0, 9998, 50 * time.Second, 150 * time.Second, 1_000_000 * time.Second},
		"of a pass":                    {tokens, time.Minute, 30 * time.Second, 0, time.Second, 30 * time.Second, time.Minute},
		"of a pass that ends at once":  {tokens, 70 * time.Second, 5 * time.Second, 0, 5 * time.Second, 5 * time.Second, time.Minute},
		"of what ends before it comes": {calls, 70 * time.Second, 0, 0, 11 * time.Second, 20 * time.Second, 20 * time.Second},
	} {
		s := Seen{tt.of, bucket.Status{Limit: tt.of.Limit, FullIn: tt.used}.After(0), tt.ends}
		more := s.MoreIn() // the bucket admits 100 µs before its time
		if s.Remaining() != tt.remaining || more > tt.more || more < tt.more-100*time.Microsecond || s.FullIn() != tt.full || s.Window() != tt.window {
			t.Errorf("%s: %d, more in %s, full in %s, of %s; want %+v", name, s.Remaining(), more, s.FullIn(), s.Window(), tt)
		}
	}
}
