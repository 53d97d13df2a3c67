package bucket

import (
	"context"
	"fmt"
)

// longestDebt is how long a debt bars a pool at most: far beyond what calls
// can bring about, and short enough for every sum of times.
const longestDebt = 366 * 24 * 60 * 60 * second

// debt is what a pool lacks beyond its burst, rounded up.
func (p *Pool) debt(tat, now micros) int64 {
	beyond := tat - now - p.limit.period()
	if beyond <= tolerance {
		return 0
	}
	return mulDivUp(int64(beyond), p.limit.Capacity, int64(p.limit.period()))
}

// charge takes what was used beyond a reservation, into debt.
func (p *Pool) charge(ctx context.Context, amount int64) error {
	inc, err := increment(amount, p.limit.Capacity, p.limit.period())
	if err != nil {
		inc = longestDebt
	}
	p.mu.Lock()
	tat := p.last.tat
	p.mu.Unlock()
	for range maxTries {
		w, err := p.b.write(ctx, p.key, p.charging(min(inc, longestDebt), tat, p.b.now()))
		p.count()
		if err != nil {
			return err
		}
		seen, err := p.learn(w)
		if err != nil || w.applied {
			return err
		}
		tat = seen.tat
	}
	return fmt.Errorf("%w: the pool changed under %d tries", ErrUnavailable, maxTries)
}

// charging is the conditional write that moves the TAT on by inc: from where it is if
// the pool is running, else from now; but not beyond the longest debt.
func (p *Pool) charging(inc, tat, now micros) *update {
	u := newUpdate()
	u.overrun(p.slot(), inc, tat, now, now+p.limit.period()+longestDebt)
	u.expires(p.b.itemExpiry(now, p.limit.period()+longestDebt))
	return u
}

// Forgive takes a pool out of debt: it is empty then and refilling, as if no more
// than the burst had been used. A pool without debt is left as it is. Leases that were
// drawn before give nothing back any more: what was forgiven may have been theirs. It
// says how much was forgiven, in the pool's units, and how the pool stands now.
//
// Processes that remember a denial may repeat it for up to a second. The error is
// ErrUnavailable; then a repeated Forgive is safe.
func (p *Pool) Forgive(ctx context.Context) (forgiven int64, now PoolState, err error) {
	s, err := p.State(ctx)
	if err != nil || s.Debt == 0 {
		return 0, s, err
	}
	tat, cleared := s.tat, micros(0)
	for range maxTries {
		now := p.b.now()
		debt := p.debt(tat, now)
		if debt == 0 {
			break
		}
		mark := max(now, cleared+1) // these times only grow, whatever clocks say
		w, err := p.b.write(ctx, p.key, p.forgiving(tat, now, mark))
		p.count()
		if err != nil {
			return 0, s, err
		}
		seen, err := p.learn(w)
		if err != nil {
			return 0, s, err
		}
		// A send whose answer was lost has left its mark.
		if w.applied || seen.cleared == mark {
			forgiven = debt
			break
		}
		tat, cleared = seen.tat, seen.cleared
	}
	s, err = p.State(ctx)
	return forgiven, s, err
}

// forgiving is the conditional write that takes the pool back to an empty burst, with
// a mark of when. The TAT must be the one that was seen: should the write arrive late,
// nothing has happened in between, or it does nothing.
func (p *Pool) forgiving(tat, now, mark micros) *update {
	u := newUpdate()
	in := p.slot()
	t := u.name(in.tat())
	u.setTo(t, " = ", u.micros(":empty", now+p.limit.period()))
	u.fence(in) // leases of older versions know the credits alone, not when a debt was forgiven
	u.setTo(u.name(in.cleared()), " = ", u.micros(":mark", mark))
	u.expires(p.b.itemExpiry(now, p.life))
	u.require(t, " = ", u.micros(":tat", tat))
	u.require(u.atMost(in.cleared(), ":before", mark-1))
	return u
}
