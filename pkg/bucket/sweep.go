package bucket

import (
	"context"
	"time"
)

// clearMargin is how long, in µs, after a clear a hold must have been taken for
// its sweep to give anything back: room for clocks that differ.
const clearMargin = int64(5 * time.Second / time.Microsecond)

// sweep removes all expired holds of an item, each in a write of its own, and
// gives the item as it is then. Whoever removes a hold wins; a late settle of it
// finds nothing left to do. Before a hold is removed, OnAbandoned is told.
func (b *Buckets) sweep(ctx context.Context, key string, it item, now int64) (item, error) {
	for {
		h, found := it.expired(now)
		if !found {
			return it, nil
		}
		if !h.dead && b.opts.OnAbandoned != nil {
			if err := b.opts.OnAbandoned(ctx, Abandoned{
				Key: key, ID: h.id, Note: h.note,
				Start: time.UnixMicro(h.start), Expiry: time.UnixMicro(h.expiry),
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
	giveBack := true
	for {
		u, err := b.expiredRemoval(it, h, giveBack)
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
		// The fence failed: the limit was cleared between our reading and writing.
		it, giveBack = w.item, false
	}
}

func (b *Buckets) expiredRemoval(it item, h storedHold, giveBack bool) (*update, error) {
	u := newUpdate()
	attr := u.name(holdPrefix + h.id)
	u.removeAttr(attr)
	u.require(attr, " = ", u.binary(h.bytes))
	if h.dead {
		return u, nil // it no longer counts as open
	}
	u.leaves(h.client)
	if !giveBack {
		return u, nil
	}
	now := b.now()
	for _, r := range h.returns {
		cleared, err := it.number(clearedAttr(r.name))
		if err != nil {
			return nil, err
		}
		if cleared != 0 && h.start <= cleared+clearMargin {
			continue
		}
		credits := creditsAttr(h.client, r.name, r.period)
		g, err := it.number(credits)
		if err != nil {
			return nil, err
		}
		u.credit(r.tatAttr, credits, creditByAge(r.inc, h.start, now), g+r.period)
	}
	return u, nil
}
