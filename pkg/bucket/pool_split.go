package bucket

import (
	"fmt"
	"math"
	"time"
)

const (
	// MinCeiling and MaxCeiling are the ends of the range of a Ceiling's Amount. The
	// least has a burst of one unit; the most is the largest int64, which the
	// arithmetic of pools bears.
	MinCeiling = burstShare
	MaxCeiling = math.MaxInt64

	// burstShare of a ceiling may be spent at once; the rest refills.
	burstShare = 4

	// defaultLife and defaultMargin are those of PoolOptions.
	defaultLife   = time.Minute
	defaultMargin = 5 * time.Second
)

// Ceiling is the most that any rolling period may cost, and how a pool keeps it.
//
// A bucket of capacity b and rate r lets b + r x t through in any time t. Money on
// lease may be spent up to a lease's life after it was drawn, and clocks differ by
// a margin. So the ceiling X over a period P is split into a burst b and a rate r
// with b + r x (P + life + margin) = X.
type Ceiling struct {
	Amount int64         // in units of the caller's choice, MinCeiling to MaxCeiling
	Period time.Duration // whole seconds, at least 1
}

// Burst is the part of a ceiling that may be spent at once. No single call may
// cost more.
func (c Ceiling) Burst() int64 { return c.Amount / burstShare }

// CeilingFor is the least amount of a ceiling whose burst bears a call of that
// cost, or MaxCeiling if none is enough.
func CeilingFor(cost int64) int64 {
	if cost > MaxCeiling/burstShare {
		return MaxCeiling
	}
	return max(MinCeiling, cost*burstShare)
}

// Within is the most that any time d can cost, rounded up, with the life and margin
// that pools have unless told otherwise: for d = Period that is Amount. It is
// math.MaxInt64 where that is too little.
func (c Ceiling) Within(d time.Duration) int64 {
	const lag = defaultLife + defaultMargin
	burst := c.Burst()
	return addUp(burst, mulDivUp(c.Amount-burst, (d+lag).Microseconds(), (c.Period+lag).Microseconds()))
}

// refill is how long it takes to refill the burst: whole seconds, rounded up, which
// lowers the rate. Money may be spent until lag after it was drawn.
func (c Ceiling) refill(lag time.Duration) (time.Duration, error) {
	if c.Amount < MinCeiling {
		return 0, fmt.Errorf("ceiling %d is below %d", c.Amount, int64(MinCeiling))
	}
	if c.Period < time.Second || c.Period%time.Second != 0 {
		return 0, fmt.Errorf("period %s must be whole seconds, at least 1", c.Period)
	}
	// rate = (X - b) / (P + lag), so b is refilled in (P + lag) x b / (X - b).
	burst := c.Burst()
	takes, err := increment(burst, c.Amount-burst, lasting(c.Period+lag))
	if err != nil {
		return 0, fmt.Errorf("period %s: %w", c.Period, err)
	}
	return time.Duration((takes+second-1)/second) * time.Second, nil
}
