// Package price turns token counts into money.
//
// Money is an int64 number of pico-dollars (1e-12 of a US dollar). A dollar per
// million tokens is exactly 1,000,000 pico-dollars per token, so that every
// published price is a whole number and every sum is exact; int64 holds up to
// about 9.2 million dollars.
//
// Guarantees: each token is priced once, by its kind. The parts of a call add up to
// its total. For a call within its bounds, WorstCase is never below Cost. No figure
// wraps around: one that is too large for int64 becomes the largest int64. So nothing
// turns negative or small, whatever a provider claims.
package price

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// Pico is an amount of money in pico-dollars.
type Pico int64

// Dollar is one US dollar.
const Dollar Pico = 1_000_000_000_000

// MicroDollar is the unit in which spend limits are shown.
const MicroDollar Pico = 1_000_000

// MicroDollars gives p in micro-dollars, rounded up. p must not be negative.
func (p Pico) MicroDollars() int64 {
	whole := p / MicroDollar
	if p%MicroDollar > 0 {
		whole++
	}
	return int64(whole)
}

// Sum adds two amounts, or counts, neither of them negative. It saturates.
func Sum[N ~int64](a, b N) N {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// times is the price of n tokens at r each, neither of them negative. It saturates.
func (r Pico) times(n int64) Pico {
	hi, lo := bits.Mul64(uint64(n), uint64(r))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return Pico(lo)
}

// String gives p in dollars, exactly, without trailing zeros: "0.0004".
func (p Pico) String() string {
	sign := ""
	if p < 0 {
		sign = "-"
	}
	// Not -p: the smallest int64 has no positive twin.
	whole, fraction := uint64(p/Dollar), uint64(p%Dollar)
	if p < 0 {
		whole, fraction = -whole, -fraction
	}
	s := fmt.Sprintf("%s%d.%012d", sign, whole, fraction)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// Usage is what a provider says it billed, in tokens.
type Usage struct {
	Input       int64 // all input tokens, those read from and written to a cache included
	CachedInput int64 // of Input: read from a cache
	CacheWrite  int64 // of Input: written to a cache
	Output      int64 // all output tokens, reasoning included
	Reasoning   int64 // of Output: reasoning, for display; it has no price of its own
}

// Total is the number of tokens that counts against a token limit.
func (u Usage) Total() int64 { return Sum(u.Input, u.Output) }

// Valid reports whether u can be true: nothing in it is negative or absurdly large, and
// no part is larger than its whole. Providers report usage that is not Valid, too. It
// says nothing about whether the context of a model can hold u.
func (u Usage) Valid() bool {
	const most = 1 << 40 // far above any context window
	for _, n := range [...]int64{u.Input, u.CachedInput, u.CacheWrite, u.Output, u.Reasoning} {
		if n < 0 || n > most {
			return false
		}
	}
	return u.CachedInput+u.CacheWrite <= u.Input && u.Reasoning <= u.Output
}

// Rates are prices in pico-dollars per token.
type Rates struct {
	Input       Pico // uncached input
	CachedInput Pico // input read from a cache
	CacheWrite  Pico // input written to a cache
	Output      Pico // output, reasoning included
}

// Table is the price list of one model.
type Table struct {
	Rates
	// LongAbove is the number of input tokens above which Long applies to the
	// whole call; 0 means that the model has no long-context rates.
	LongAbove int64
	Long      Rates
}

// Cost prices a call. u must be Valid.
func (t Table) Cost(u Usage) Pico {
	r := t.rates(u.Input)
	uncached := u.Input - u.CachedInput - u.CacheWrite
	input := Sum(r.Input.times(uncached), Sum(r.CachedInput.times(u.CachedInput), r.CacheWrite.times(u.CacheWrite)))
	return Sum(input, r.Output.times(u.Output))
}

// WorstCase is the most that a call with at most the given numbers of input and
// output tokens, neither of them negative, can cost: every input token at the dearest
// input rate.
func (t Table) WorstCase(input, output int64) Pico {
	worst := t.Rates.worst(input, output)
	if t.LongAbove > 0 && input > t.LongAbove {
		worst = max(worst, t.Long.worst(input, output))
	}
	return worst
}

// AffordableOutput is the largest number of output tokens with which the WorstCase of a
// call with that input stays within budget. It is negative if the input alone does not
// fit.
func (t Table) AffordableOutput(input int64, budget Pico) int64 {
	free := t.Rates.affordable(input, budget)
	if t.LongAbove > 0 && input > t.LongAbove {
		free = min(free, t.Long.affordable(input, budget))
	}
	return free
}

func (t Table) rates(input int64) Rates {
	if t.LongAbove > 0 && input > t.LongAbove {
		return t.Long
	}
	return t.Rates
}

func (r Rates) dearestInput() Pico { return max(r.Input, r.CachedInput, r.CacheWrite) }

func (r Rates) worst(input, output int64) Pico {
	return Sum(r.dearestInput().times(input), r.Output.times(output))
}

func (r Rates) affordable(input int64, budget Pico) int64 {
	cost := r.dearestInput().times(input)
	if cost > budget {
		return -1
	}
	if r.Output == 0 {
		return 1 << 40
	}
	return int64((budget - cost) / r.Output)
}
