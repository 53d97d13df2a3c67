package bucket

import "errors"

// The rule is the generic cell rate algorithm (GCRA; ITU-T I.371, "virtual
// scheduling"), with one difference in meaning: the single number that is a
// limit's state, its TAT, is the time when the limit is full again. Absent or
// past means full.
//
// Everything here is pure: integers, microseconds, now as a parameter.

const (
	// tolerance is how many microseconds beyond the period still fit. An
	// increment is rounded up, so without it the last unit of a capacity that
	// does not divide its period would never fit.
	tolerance = micros(100)

	// maxIncrement is the largest increment, and the furthest that debt may take a
	// TAT ahead of now: 2^52 microseconds, 142 years. Sums of a TAT and several
	// increments stay far from overflow, and so does the time until a limit is full
	// again as a time.Duration, which holds 292 years.
	maxIncrement = micros(1 << 52)
)

var errIncrement = errors.New("bucket: cost, capacity or period out of range")

// increment is by how much a cost moves a TAT: cost x period / capacity, rounded up.
// The product is taken in 128 bits, since a dollar of micro-dollars over a day already
// overflows 64. It fails for a cost, capacity or period below 1, and for a result above
// maxIncrement.
func increment(cost, capacity int64, period micros) (micros, error) {
	if cost < 1 || capacity < 1 || period < 1 {
		return 0, errIncrement
	}
	inc := micros(mulDivUp(cost, int64(period), capacity))
	if inc > maxIncrement {
		return 0, errIncrement
	}
	return inc, nil
}

// latest is the highest TAT at which an increment still fits at now.
func latest(now, inc, period micros) micros { return now + period + tolerance - inc }

// fits reports whether an increment is admitted.
func fits(tat, now, inc, period micros) bool { return max(tat, now) <= latest(now, inc, period) }

// wait is how long it takes until an increment fits; 0 if it fits now. The increment
// must not exceed the period: it would never fit.
func wait(tat, now, inc, period micros) micros {
	return max(0, max(tat, now)-latest(now, inc, period))
}

// remaining is the largest cost that fits at now, between 0 and the capacity.
func remaining(tat, now micros, capacity int64, period micros) int64 {
	free := now + period + tolerance - max(tat, now)
	return min(capacity, mulDiv(int64(max(0, free)), capacity, int64(period)))
}

// refund is how much of an unused increment a settle may give back at now, for a
// reserve that left the TAT at after, with below beneath it, when others have been
// given back given since.
//
// What is charged drains from the bottom, at the rate of the refill, and a refund
// moves down only what was charged after it. So what others were given back can have
// moved our share down by no more than lay beneath us; the rest of it was above. A
// refund is never less than the unused part less what refilled while we were open,
// whatever others did meanwhile.
func refund(unused, after, below, given, now micros) micros {
	return min(unused, max(0, after-min(given, below)-now))
}

// refundByAge is refund for a reserve of inc of which only the start is known, not
// the TAT that it left. Since then no more can have drained from it than was refilled,
// so that the rest is still there, whatever others did.
func refundByAge(unused, inc, start, now micros) micros {
	return max(0, min(unused, inc-(now-start)))
}

// beneath is what lay beneath a reserve of inc that left the TAT at after, at now.
func beneath(after, inc, now micros) micros { return max(0, after-inc-now) }

// refundHolds is the most that others may have been given back for a refund to be
// right still; without bound, for one that would be right however much it was.
func refundHolds(refund, after, below, now micros) (most micros, bounded bool) {
	return after - now - refund, refund > after-below-now
}
