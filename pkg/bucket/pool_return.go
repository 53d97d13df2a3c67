package bucket

import (
	"context"
	"fmt"
)

// repay returns money of a lease to the pool. Nothing marks it as done, so a send
// without an answer is never repeated.
func (p *Pool) repay(ctx context.Context, rest unspent) error {
	l, unused := rest.lease, micros(mulDiv(rest.amount, int64(p.limit.period()), p.limit.Capacity)) // never more than was taken
	for range maxTries {
		back, u := p.repayment(l, unused)
		if back == 0 {
			return nil // refilled by now, or a debt was forgiven since the draw
		}
		w, err := p.b.send(ctx, p.key, u)
		p.count()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		seen, err := p.learn(w)
		p.mu.Lock()
		if w.applied {
			l.arrived(back)
		} else {
			l.tookBack(back)
		}
		p.mu.Unlock()
		if w.applied || w.item == nil || err != nil || seen.cleared != l.cleared {
			return err
		}
	}
	return nil
}

// repayment is the conditional write that gives back as much of unused as is right by
// what is known of the pool, and how much that is, which l no longer holds.
func (p *Pool) repayment(l *lease, unused micros) (micros, *update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	margin := lasting(p.opts.Margin)
	if p.last.cleared > l.cleared || p.committed() <= margin { // an all but full pool is not worth a write
		return 0, nil
	}
	back, most, bounded := l.refund(unused, margin, max(l.credits, p.last.credits), l.age(p.now()))
	if back == 0 {
		return 0, nil
	}
	l.sendBack(back)
	in := p.slot()
	u := newUpdate()
	u.giveBack(in, back)
	u.require("attribute_exists(", u.name(in.tat()), ")")
	u.require(u.still(in.cleared(), ":cleared", l.cleared))
	if bounded {
		u.require(u.atMost(in.credits(), ":credits", most))
	}
	return back, u
}
