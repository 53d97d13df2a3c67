package bucket

import (
	"context"
	"fmt"
	"time"
)

// longestDebt is how long, in µs, a debt bars a pool at most: far beyond what calls
// can bring about, and short enough for every sum of times.
const longestDebt = int64(366 * 24 * time.Hour / time.Microsecond)

// debt is what a pool lacks beyond its burst, rounded up.
func (p *Pool) debt(tat, now int64) int64 {
	beyond := tat - now - p.limit.period()
	if beyond <= tolerance {
		return 0
	}
	return mulDivUp(beyond, p.limit.Capacity, p.limit.period())
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
		p.count(1)
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
func (p *Pool) charging(inc, tat, now int64) *update {
	u := newUpdate()
	t, most := u.name(p.attrs().tat), now+p.limit.period()+longestDebt
	switch {
	case tat <= now:
		u.setTo(t, " = ", u.number(now+inc))
		u.require("(attribute_not_exists(", t, ") OR ", t, " <= ", u.number(now), ")")
	case tat <= most-inc:
		u.setTo(t, " = ", t, " + ", u.number(inc))
		u.require(t, " > ", u.number(now), " AND ", t, " <= ", u.number(most-inc))
	default:
		u.setTo(t, " = ", u.number(most))
		u.require(t, " > ", u.number(most-inc))
	}
	u.setTo(u.name(attrExpires), " = ", u.number(p.b.itemExpiry(now, p.limit.period()+longestDebt)))
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
	tat, cleared := s.tat, int64(0)
	for range maxTries {
		now := p.b.now()
		debt := p.debt(tat, now)
		if debt == 0 {
			break
		}
		mark := max(now, cleared+1) // these times only grow, whatever clocks say
		w, err := p.b.write(ctx, p.key, p.forgiving(tat, now, mark))
		p.count(1)
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
func (p *Pool) forgiving(tat, now, mark int64) *update {
	u := newUpdate()
	attrs, period := p.attrs(), p.limit.period()
	t, g := u.name(attrs.tat), u.name(attrs.credits)
	u.setTo(t, " = ", u.number(now+period))
	// Leases of older versions know the credits alone, not when a debt was forgiven.
	u.setTo(g, " = if_not_exists(", g, ", ", u.number(0), ") + ", u.number(clearCredits*period))
	u.setTo(u.name(attrs.cleared), " = ", u.number(mark))
	u.setTo(u.name(attrExpires), " = ", u.number(p.b.itemExpiry(now, p.opts.Life.Microseconds())))
	u.require(t, " = ", u.number(tat))
	u.require(u.atMost(attrs.cleared, mark-1))
	return u
}
