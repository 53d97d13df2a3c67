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

// change is what a settle does to one limit, in µs: at most one is above 0.
type change struct {
	*charge
	unused, overrun int64
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
		var inc int64
		if used[i] > 0 {
			var err error
			if inc, err = increment(used[i], c.Limit.Capacity, c.period); err != nil {
				inc = maxIncrement
			}
		}
		if d := c.inc - inc; d != 0 {
			changes = append(changes, change{c, max(0, d), max(0, -d)})
		}
	}
	return changes, nil
}

// settle writes until it is known that the hold is gone, by this write or by
// another's.
func (r *Reservation) settle(ctx context.Context, changes []change) error {
	b := r.b
	state := settleState{}
	for _, c := range changes {
		state.credits = append(state.credits, c.creditsAfter)
		state.tats = append(state.tats, c.after)
	}
	for {
		now := b.now()
		w, err := b.write(ctx, r.key, r.settlement(changes, state, now))
		if err != nil {
			return err
		}
		if w.applied {
			b.memory.put(r.key, w.item, 0)
			// The call is over: time to clear up what the reserve came across.
			_, _ = b.sweep(ctx, r.key, w.item, now)
			return nil
		}
		if !w.item.hasHold(r.id, r.hold) {
			return nil // settled by an earlier send, or swept
		}
		for i, c := range changes {
			if state.credits[i], err = w.item.number(c.credits); err != nil {
				return err
			}
			if state.tats[i], err = w.item.number(c.tat); err != nil {
				return err
			}
		}
		state.seen = true
	}
}

// settleState is what a settle believes of each changed limit.
type settleState struct {
	tats, credits []int64
	seen          bool // it comes from a failed settle, not from the reserve
}

// settlement is the conditional write that removes the hold and, in the same
// step, gives back or charges the difference.
func (r *Reservation) settlement(changes []change, s settleState, now int64) *update {
	u := newUpdate()
	h := u.name(holdPrefix + r.id)
	u.leaves(r.client.Key)
	if r.unanswered {
		// A send of the reserve may still be under way; it must not apply anew.
		u.setTo(h, " = ", u.binary(tombstone(now)))
	} else {
		u.removeAttr(h)
	}
	// The exact value: a tombstone must not pass for the hold.
	u.require(h, " = ", u.binary(r.hold))
	overrun := false
	for i, c := range changes {
		if c.overrun > 0 {
			u.overrun(c.tat, c.overrun, s.tats[i], now)
			overrun = true
			continue
		}
		back, fence := r.giveBack(c, s, i, now)
		u.credit(c.tat, c.credits, back, fence)
	}
	if overrun { // once, however many limits: an attribute may be set but once
		u.setTo(u.name(attrExpires), " = ", u.number(r.b.itemExpiry(now, r.b.opts.LongestPeriod.Microseconds())))
	}
	return u
}

// giveBack is how much of the unused increment a settle returns, and the credits
// up to which that holds.
func (r *Reservation) giveBack(c change, s settleState, i int, now int64) (back, fence int64) {
	if !r.afterKnown {
		if s.seen && s.credits[i] > c.creditsAfter+c.period {
			return 0, 0 // cleared since
		}
		return creditByAge(c.unused, r.start, now), c.creditsAfter + c.period
	}
	back = credit(c.unused, c.after, c.creditsAfter, s.credits[i], now)
	return back, c.creditsAfter + c.after - now - back
}

// credit takes a TAT back by n µs if the credits are still at most fence.
func (u *update) credit(tat, credits string, n, fence int64) {
	if n == 0 {
		return
	}
	t, g, back := u.name(tat), u.name(credits), u.number(n)
	u.setTo(t, " = ", t, " - ", back)
	u.setTo(g, " = if_not_exists(", g, ", ", u.number(0), ") + ", back)
	u.require("(attribute_not_exists(", g, ") OR ", g, " <= ", u.number(fence), ")")
}

// overrun moves a TAT on by what exceeded the reservation: from where it is if
// the limit is running, else from now, so that no debt is lost in the past.
func (u *update) overrun(attr string, inc, tat, now int64) {
	t := u.name(attr)
	if tat > now {
		u.setTo(t, " = ", t, " + ", u.number(inc))
		u.require(t, " > ", u.number(now))
	} else {
		u.setTo(t, " = ", u.number(now+inc))
		u.require("(attribute_not_exists(", t, ") OR ", t, " <= ", u.number(now), ")")
	}
}
