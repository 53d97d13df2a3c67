package bucket

import (
	"math"
	"math/bits"
)

// mulDiv is n x num / den, rounded down, with the product in 128 bits. Nothing is
// negative, den is at least 1, and the result is at most math.MaxInt64.
func mulDiv(n, num, den int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(num))
	if hi >= uint64(den) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	return int64(min(q, math.MaxInt64))
}

// mulDivUp is mulDiv, rounded up.
func mulDivUp(n, num, den int64) int64 {
	q := mulDiv(n, num, den)
	hi, lo := bits.Mul64(uint64(n), uint64(num))
	backHi, backLo := bits.Mul64(uint64(q), uint64(den))
	if q < math.MaxInt64 && (hi != backHi || lo != backLo) {
		q++
	}
	return q
}

// addUp is a + b, at most math.MaxInt64. Neither is negative.
func addUp(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
