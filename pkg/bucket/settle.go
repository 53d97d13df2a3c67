package bucket

import (
	"context"
	"errors"
	"fmt"
)

// Settle replaces the worst case by what was really used, once. used has an
// entry for each charge, in its order and unit; 0 is nothing. Entries of limits
// that return Never are ignored. What exceeds the reservation is charged in full,
// into debt.
//
// Settling again, or after the hold has expired and was swept, does nothing. The
// error is ErrUnavailable if the store could not be asked within
// Options.SettleTimeout; then a repeated Settle is safe, and without one the hold
// expires. ctx should not be the request's own: a settle must outlive it.
func (r *Reservation) Settle(ctx context.Context, used []int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return nil
	}
	changes, err := r.changes(used)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.b.opts.SettleTimeout)
	defer cancel()
	if err := r.settle(ctx, changes); err != nil {
		return err
	}
	r.settled = true
	return nil
}

// Cancel settles to nothing used.
func (r *Reservation) Cancel(ctx context.Context) error {
	return r.Settle(ctx, make([]int64, len(r.charges)))
}

// change is what a settle does to one limit: it either gives back some of what was
// unused, or charges an overrun.
type change struct {
	*taken
	unused, overrun micros

	// What the settle believes of the limit: its TAT, what was given back by now, and
	// whether it was cleared since the reserve.
	tatNow     micros
	returnsNow returns
	cleared    bool
}

func (r *Reservation) changes(used []int64) ([]change, error) {
	if len(used) != len(r.charges) {
		return nil, errors.New("bucket: Settle needs one figure for each charge")
	}
	changes := make([]change, 0, len(used))
	for i := range r.charges {
		c := &r.charges[i]
		if used[i] < 0 {
			return nil, fmt.Errorf("bucket: limit %s: used %d is negative", c.Limit.Name, used[i])
		}
		if c.Limit.Return == Never {
			continue
		}
		var inc micros
		if used[i] > 0 {
			var err error
			if inc, err = increment(used[i], c.Limit.Capacity, c.period); err != nil {
				inc = maxIncrement
			}
		}
		if d := c.inc - inc; d != 0 {
			changes = append(changes, change{taken: c, unused: max(0, d), overrun: max(0, -d)})
		}
	}
	return changes, nil
}

// settle writes until it is known that the hold is gone, by this write or by
// another's.
func (r *Reservation) settle(ctx context.Context, changes []change) error {
	b := r.b
	for i, c := range changes {
		// Without an answer to the reserve, what is known is of a later moment, and a
		// clear may have come between.
		changes[i].tatNow, changes[i].returnsNow = c.after, c.then
		changes[i].cleared = !r.afterKnown && c.then.clearedAfter(r.start)
	}
	for {
		now := b.now()
		w, err := b.write(ctx, r.key, r.settlement(changes, now))
		if err != nil {
			return err
		}
		if w.applied {
			b.memory.put(r.key, w.item, 0)
			// The call is over: time to clear up what the reserve came across.
			it, _ := b.sweep(ctx, r.key, w.item, now)
			r.look(it, b.now())
			return nil
		}
		if !w.item.hasHold(r.id, r.hold) {
			r.look(w.item, b.now())
			return nil // settled by an earlier send, or swept
		}
		for i := range changes {
			if err := changes[i].look(w.item); err != nil {
				return err
			}
		}
	}
}

// look takes down what an item has become since.
func (c *change) look(it item) (err error) {
	if c.tatNow, err = it.micros(c.tat()); err != nil {
		return err
	}
	if c.returnsNow, err = it.returns(c.slot); err != nil {
		return err
	}
	c.cleared = c.cleared || c.returnsNow.clearedSince(c.then, c.period)
	return nil
}

// settlement is the conditional write that removes the hold and, in the same
// step, gives back or charges the difference.
func (r *Reservation) settlement(changes []change, now micros) *update {
	u := newUpdate()
	h := u.name(holdAttr(r.id))
	u.leaves(r.client)
	if r.unanswered {
		// A send of the reserve may still be under way; it must not apply anew.
		u.setTo(h, " = ", u.binary(":dead", tombstone(now)))
	} else {
		u.removeAttr(h)
	}
	// The exact value: a tombstone must not pass for the hold.
	u.require(h, " = ", u.binary(":hold", r.hold))
	longest := lasting(r.b.opts.LongestPeriod)
	var debt micros // how long the item must live for its debts, beside longest
	for _, c := range changes {
		if c.overrun == 0 {
			r.refund(u, c, now)
			continue
		}
		u.overrun(c.slot, c.overrun, c.tatNow, now, now+maxIncrement)
		ahead := max(0, c.tatNow-now)
		if ahead < maxIncrement { // others made no debt that is not known
			u.require(u.atMost(c.tat(), ":known_"+c.name, now+ahead+longest))
		}
		debt = max(debt, longest, min(ahead+c.overrun, maxIncrement))
	}
	if debt > 0 { // once, however many limits: an attribute may be set but once
		u.expires(r.b.itemExpiry(now, debt))
	}
	return u
}

// refund gives back what a call did not use, as far as it is still there and while
// that is certain: the limit was not cleared since the reserve, and others were not
// given back more than is believed, unless that makes no difference.
func (r *Reservation) refund(u *update, c change, now micros) {
	if c.cleared {
		return
	}
	back := refundByAge(c.unused, c.inc, r.start, now)
	if r.afterKnown {
		back = refund(c.unused, c.after, c.below, c.returnsNow.credits-c.then.credits, now)
	}
	if back == 0 {
		return
	}
	u.giveBack(c.slot, back)
	u.requireUncleared(c.slot, c.then)
	if most, bounded := refundHolds(back, c.after, c.below, now); r.afterKnown && bounded {
		u.require(u.atMost(c.credits(), ":credits_"+c.name, c.then.credits+most))
	}
}
