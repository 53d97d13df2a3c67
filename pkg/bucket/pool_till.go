package bucket

// till is the money of a pool that a process holds, and what its calls do with it. Its
// arithmetic is pure: the time is a parameter, and what must be written is for others.
type till struct {
	life    micros      // of a lease
	leases  []*lease    // those that live, or have calls open
	recent  []*spending // calls that started in the last lease life, oldest first
	backlog []unspent   // money on its way back, which goes when a call ends
}

// spending is what one call sets aside of a lease, and what it uses.
type spending struct {
	lease   *lease
	amount  int64
	used    int64  // once the call has ended; until then what it may use, its amount
	started micros // by the monotonic clock
}

// unspent is money of a lease that goes back to the pool.
type unspent struct {
	lease  *lease
	amount int64
}

const (
	// sliceShare of the burst is the most that one draw takes, unless a single
	// call needs more.
	sliceShare = 100
	// busyCalls in a lease's life make a process busy enough to keep its lease
	// between calls. Others give it back: Lambda may freeze them.
	busyCalls = 4
)

// start sets amount aside for a call, from a lease that lives, or gives nil.
func (t *till) start(amount int64, now instant) *spending {
	t.endLeases(now)
	for _, l := range t.leases {
		if l.balance >= amount && l.age(now) < t.life {
			return t.take(l, amount, now)
		}
	}
	return nil
}

// startOn sets amount aside from a lease that was just drawn for it.
func (t *till) startOn(l *lease, amount int64, now instant) *spending {
	t.leases = append(t.leases, l)
	return t.take(l, amount, now)
}

func (t *till) take(l *lease, amount int64, now instant) *spending {
	l.balance -= amount
	l.open++
	s := &spending{lease: l, amount: amount, used: amount, started: now.mono}
	t.recent = append(t.recent, s)
	return s
}

// close ends a call, and gives what must be charged for it and what must go back to
// the pool now: Lambda may freeze the process as soon as the answer has ended. A lease
// is kept until keptFor after its draw.
func (t *till) close(s *spending, used int64, now instant, keptFor micros) (overrun int64, backlog []unspent) {
	l, rest := s.lease, max(0, s.amount-used)
	overrun = max(0, used-s.amount)
	s.used = used
	l.open--
	if l.age(now) < t.life {
		l.balance += rest
		covered := min(overrun, l.balance)
		l.balance -= covered
		overrun -= covered
	} else if rest > 0 {
		t.backlog = append(t.backlog, unspent{l, rest})
	}
	t.endLeases(now)
	for _, l := range t.leases {
		if len(t.recent) < busyCalls || l.open == 0 && !keep(l.age(now), t.life, len(t.recent), keptFor) {
			t.sendHome(l)
		}
	}
	backlog, t.backlog = t.backlog, nil
	return overrun, backlog
}

// empty gives what no call has set aside, to go back to the pool.
func (t *till) empty(now instant) (backlog []unspent) {
	t.endLeases(now)
	for _, l := range t.leases {
		t.sendHome(l)
	}
	backlog, t.backlog = t.backlog, nil
	return backlog
}

// endLeases moves what is left of ended leases to the backlog: it never joins a
// newer lease, or a hoarder could keep money alive beyond a lease's life.
func (t *till) endLeases(now instant) {
	kept := t.leases[:0]
	for _, l := range t.leases {
		lives := l.age(now) < t.life
		if !lives {
			t.sendHome(l)
		}
		if lives || l.open > 0 {
			kept = append(kept, l)
		}
	}
	clear(t.leases[len(kept):])
	t.leases = kept
	for len(t.recent) > 0 && t.recent[0].started < now.mono-t.life {
		t.recent = t.recent[1:]
	}
}

// sendHome moves what is left of a lease to the backlog.
func (t *till) sendHome(l *lease) {
	if l.balance > 0 {
		t.backlog = append(t.backlog, unspent{l, l.balance})
		l.balance = 0
	}
}

// slice is how much to draw of a burst for a call that needs amount: beside that, what
// calls are likely to use while the lease is kept, and one call more. What calls have
// set aside says little of that: most of it comes back.
func (t *till) slice(amount, burst int64, keptFor micros) int64 {
	if len(t.recent)+1 < busyCalls {
		return amount // it goes back when the call ends
	}
	var lately, largest int64 // what calls of a lease's life used, or may use while they are open
	for _, s := range t.recent {
		lately, largest = addUp(lately, s.used), max(largest, s.used)
	}
	lately = mulDiv(lately, int64(keptFor), int64(t.life))
	return max(amount, min(addUp(amount, addUp(lately, largest)), burst/sliceShare))
}
