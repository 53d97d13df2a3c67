package bucket

import (
	"context"
)

// sweep removes all expired holds of an item, each in a write of its own, and
// gives the item as it is then. Whoever removes a hold wins; a late settle of it
// finds nothing left to do. Before a hold is removed, OnAbandoned is told.
func (b *Buckets) sweep(ctx context.Context, key string, it item, now micros) (item, error) {
	for {
		h, found := it.expired(now)
		if !found {
			return it, nil
		}
		if !h.dead && b.opts.OnAbandoned != nil {
			if err := b.opts.OnAbandoned(ctx, Abandoned{
				Key: key, ID: h.id, Note: h.note,
				Start: h.start.time(), Expiry: h.expiry.time(),
			}); err != nil {
				return it, err
			}
		}
		swept, err := b.removeExpired(ctx, key, it, h)
		if err != nil {
			return it, err
		}
		it = swept
	}
}

// removeExpired removes one hold, if it is still there.
func (b *Buckets) removeExpired(ctx context.Context, key string, it item, h storedHold) (item, error) {
	for {
		u, err := h.removal(it, b.now())
		if err != nil {
			return it, err
		}
		w, err := b.write(ctx, key, u)
		if err != nil {
			return it, err
		}
		if w.applied || !w.item.hasHold(h.id, h.bytes) {
			return w.item, nil
		}
		it = w.item // a limit was cleared between our reading and writing
	}
}

// removal is the conditional write that removes an expired hold from an item.
func (h storedHold) removal(it item, now micros) (*update, error) {
	u := newUpdate()
	attr := u.name(holdAttr(h.id))
	u.removeAttr(attr)
	u.require(attr, " = ", u.binary(":hold", h.bytes))
	if h.dead {
		return u, nil // it no longer counts as open
	}
	u.leaves(h.client)
	for _, r := range h.owed {
		then, err := it.returns(r.slot)
		if err != nil {
			return nil, err
		}
		back := refundByAge(r.inc, r.inc, h.start, now)
		if back == 0 || then.clearedAfter(h.start) {
			continue
		}
		u.giveBack(r.slot, back)
		u.requireUncleared(r.slot, then)
	}
	return u, nil
}
