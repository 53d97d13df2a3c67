package bucket

// instant is a moment by two clocks: the wall's, and one that runs while the process
// does.
type instant struct{ wall, mono micros }

// lease is money that a process drew from a pool, and the receipt by which what is
// left of it goes back. Its arithmetic is pure: clocks are parameters.
type lease struct {
	drawn   instant // when the draw was sent
	balance int64   // money that no call has set aside
	open    int     // calls that started on it

	inc     micros // of the pool that it holds: what was drawn less what was sent back
	after   micros // the pool's TAT after the draw, less what was sent back
	below   micros // what lay beneath it in the pool when it was drawn
	credits micros // the pool's credits after the draw, with what is known to have come back from here
	cleared micros // when the pool's debt had last been forgiven; 0: never
}

// age is how old a lease is: by the clock that says more, since a frozen
// container's monotonic clock stands still and a wall clock may be set back.
func (l *lease) age(now instant) micros {
	return max(0, now.wall-l.drawn.wall, now.mono-l.drawn.mono)
}

// refund is how much of unused a lease may give back to the pool at an age,
// when the pool's credits have become credits; and up to which credits that is
// right, if not for any.
//
// It is the rule of a settle with a margin for clocks. The lease's own age is
// measured by one clock, so that the part which the refill cannot have reached comes
// back whole. What is more rests on TATs that other clocks have made, so the margin
// is taken from the TAT, and from what lay beneath, which leaves the former part as
// it is.
func (l *lease) refund(unused, margin, credits, age micros) (back, most micros, bounded bool) {
	now, after, below := l.drawn.wall+age, l.after-margin, l.below-margin
	back = refund(min(unused, l.inc), after, below, credits-l.credits, now)
	most, bounded = refundHolds(back, after, below, now)
	return back, l.credits + most, bounded
}

// sendBack notes that n is on its way back: whether or not that is answered,
// the lease holds less.
func (l *lease) sendBack(n micros) {
	l.inc -= n
	l.after -= n
}

// tookBack notes that the pool refused n that was sent back.
func (l *lease) tookBack(n micros) { l.sendBack(-n) }

// arrived notes that n is known to have come back.
func (l *lease) arrived(n micros) { l.credits += n }

// keepFor is how long after its draw a lease is kept, when committed of the
// pool's period is used. Up to half of the pool that is a lease's life. Beyond, it
// falls from half of that to nothing at three quarters, so that money held for calls
// that may not come leaves room for those who call; and so that it goes back while
// that is worth something: of a pool on which many draw and give back, what is held
// for long comes back as refilled. It is never so short that a process which calls
// every second would write for each call.
func keepFor(life, committed, period micros) micros {
	if committed <= period/2 {
		return life
	}
	return max(life/16, micros(mulDiv(int64(life), int64(max(0, 3*(period/4)-committed)), int64(period/2))))
}

// keep reports whether a lease of an age is kept for the next call, when calls came
// in the last life and a lease is kept for that long: the next must be likely to come
// while the lease is kept.
func keep(age, life micros, calls int, keptFor micros) bool {
	return age+life/micros(calls) <= keptFor
}
