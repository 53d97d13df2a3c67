package bucket

import (
	"context"
	"fmt"
	"slices"
)

// clearCredits times the period is what a clear adds to a limit's credits: more than
// any fence of an older version allows, which knows a clear by that.
const clearCredits = 16

// clearMargin is how long after a clear a call must have begun for what is known
// of it only by its start to be given back: room for clocks that differ.
const clearMargin = 5 * second

// Clear makes up to MaxLimits limits of an identity full. Open calls stay open and settle as
// ever, but give nothing back to what was cleared. ErrNotFound if there is no such
// identity: none is made. Processes that remember a denial may repeat it for up to
// a second.
func (b *Buckets) Clear(ctx context.Context, key string, limits ...Limit) error {
	return b.clear(ctx, key, "", limits)
}

// ClearClient is Clear for limits of one of an identity's clients. ErrNotFound if
// there is no such client: then its limits are full.
func (b *Buckets) ClearClient(ctx context.Context, key, client string, limits ...Limit) error {
	if !validClientKey(client) {
		return fmt.Errorf("bucket: client key %q must be 8 characters A-Z, 2-7", client)
	}
	return b.clear(ctx, key, client, limits)
}

// clear makes the limits of an identity full, or those of a client if it is not "". The
// times of a limit's clears only grow: a receipt of before a clear never takes its time
// for that of an earlier one, and a send that was taken for lost changes nothing when it
// arrives after all.
func (b *Buckets) clear(ctx context.Context, key, client string, limits []Limit) error {
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			return err
		}
	}
	switch {
	case len(limits) == 0:
		return nil
	case len(limits) > MaxLimits:
		return fmt.Errorf("bucket: at most %d limits are cleared in one write, and these are %d", MaxLimits, len(limits))
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.ReserveTimeout)
	defer cancel()
	for at := b.now(); ; {
		w, err := b.write(ctx, key, clearing(client, limits, at))
		if err != nil {
			return err
		}
		if _, there := w.item[openAttr(client)]; len(w.item) == 0 || client != "" && !there {
			return ErrNotFound
		}
		if w.applied {
			b.memory.put(key, w.item, 0)
			return nil
		}
		// Another clear was as late, or this one, whose answer was lost. Clearing again
		// does no harm.
		for _, l := range limits {
			cleared, err := w.item.micros(l.of(client).cleared())
			if err != nil {
				return err
			}
			at = max(at, cleared+1)
		}
	}
}

// clearing is the conditional write that clears limits at a time.
func clearing(client string, limits []Limit, at micros) *update {
	u := newUpdate()
	var marked []string
	for _, l := range limits {
		s := l.of(client)
		u.setTo(u.name(s.tat()), " = ", u.zero())
		if l.Return != Never {
			u.fence(s)
		}
		if attr := s.cleared(); !slices.Contains(marked, attr) { // once for several periods
			marked = append(marked, attr)
			now := u.micros(":now", at)
			u.setTo(u.name(attr), " = ", now)
			u.require(u.below(attr, now))
		}
	}
	u.require("attribute_exists(", u.name(attrKey), ")")
	if client != "" {
		// Limits of a client that gave way must not come back without it.
		u.require("attribute_exists(", u.name(openAttr(client)), ")")
	}
	return u
}
