package bucket

import (
	"context"
	"fmt"
)

// draw leases a slice with one conditional write. A send without an answer is
// sent again: should both apply, the first is lost until it is refilled, which the
// ceiling can bear.
func (p *Pool) draw(ctx context.Context, amount int64) (*PoolReservation, Denial, error) {
	period := p.limit.period()
	need, err := increment(amount, p.limit.Capacity, period)
	if err != nil {
		return nil, Denial{}, err
	}
	p.mu.Lock()
	slice, tat, denied := p.slice(amount, p.limit.Capacity, p.keptFor()), p.last.tat, p.denied
	p.mu.Unlock()
	if now := p.b.now(); denied != 0 && now >= denied && now-denied < denialMemory && !fits(tat, now, need, period) {
		return nil, p.denial(amount, need, tat, now), nil
	}
	for try := range maxTries {
		at := p.now()
		now := at.wall
		if left := remaining(tat, now, p.limit.Capacity, period); tat > now && slice > left {
			slice = max(amount, left)
		}
		inc, err := increment(slice, p.limit.Capacity, period)
		if err != nil {
			return nil, Denial{}, err
		}
		l := &lease{drawn: at, balance: slice, inc: inc}
		w, err := p.b.write(ctx, p.key, p.taking(inc, drawForm(try, tat, now, inc, period), now))
		p.count()
		if err != nil {
			return nil, Denial{}, err
		}
		seen, err := p.learn(w)
		if err != nil {
			return nil, Denial{}, err
		}
		tat = seen.tat
		if w.applied {
			l.after, l.credits, l.cleared = tat, seen.credits, seen.cleared
			l.below = beneath(tat, inc, now)
			p.mu.Lock()
			defer p.mu.Unlock()
			return &PoolReservation{spending: p.startOn(l, amount, p.now()), pool: p}, Denial{}, nil
		}
		if !fits(tat, now, need, period) {
			p.mu.Lock()
			p.denied = now
			p.mu.Unlock()
			return nil, p.denial(amount, need, tat, now), nil
		}
	}
	return nil, Denial{}, fmt.Errorf("%w: the pool changed under %d tries", ErrUnavailable, maxTries)
}

// drawForm chooses the form of a draw's n-th try, counted from 0, for a TAT that was
// remembered or, from the second try on, given by the store. An ordinary wrong guess
// costs nothing of the pool; only under contention the base lies ahead of now.
func drawForm(try int, tat, now, inc, period micros) form {
	switch {
	case try == 0 && tat > now, tat > now+near:
		return form{running: true}
	case try < 2:
		return form{base: max(tat, now)}
	}
	return contendedForm(tat, now, inc, period)
}

// taking is the conditional write that takes inc from the pool, in a form.
func (p *Pool) taking(inc micros, f form, now micros) *update {
	u := newUpdate()
	u.advance(p.slot(), f, now, inc, p.limit.period())
	u.expires(p.b.itemExpiry(now, p.life))
	return u
}

func (p *Pool) denial(amount int64, need, tat, now micros) Denial {
	period := p.limit.period()
	return Denial{Limit: p.limit, Requested: amount, Remaining: remaining(tat, now, p.limit.Capacity, period),
		RetryAfter: wait(tat, now, need, period).duration()}
}
