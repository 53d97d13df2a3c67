package bucket

import (
	"context"
	"fmt"
)

// clearCredits times the period is what a clear adds to a limit's credits: more
// than any open reservation's fence allows, so that a settle of one that was made
// before the clear gives nothing back into the new state.
const clearCredits = 16

// Clear makes limits of an identity full. Open calls stay open and settle as
// ever, but give nothing back to what was cleared. ErrNotFound if there is no such
// identity: none is made. Processes that remember a denial may repeat it for up to
// a second.
func (b *Buckets) Clear(ctx context.Context, key string, limits ...Limit) error {
	return b.clear(ctx, key, "", limits)
}

// ClearClient is Clear for limits of one of an identity's clients. ErrNotFound if
// there is no such client: then its limits are full. Abandoned calls of other
// clients that began before it give nothing back to limits of the same name.
func (b *Buckets) ClearClient(ctx context.Context, key, client string, limits ...Limit) error {
	if !validClientKey(client) {
		return fmt.Errorf("bucket: client key %q must be 8 characters A-Z, 2-7", client)
	}
	return b.clear(ctx, key, client, limits)
}

// clear makes the limits of an identity full, or those of a client if it is not "".
func (b *Buckets) clear(ctx context.Context, key, client string, limits []Limit) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.ReserveTimeout)
	defer cancel()
	u := newUpdate()
	zero, now := u.number(0), u.number(b.now())
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			return err
		}
		u.setTo(u.name(tatAttr(client, l.Name, l.period())), " = ", zero)
		if l.Return != Never {
			g := u.name(creditsAttr(client, l.Name, l.period()))
			u.setTo(g, " = if_not_exists(", g, ", ", zero, ") + ", u.number(clearCredits*l.period()))
		}
		u.setTo(u.name(clearedAttr(l.Name)), " = ", now)
	}
	if len(limits) == 0 {
		return nil
	}
	u.require("attribute_exists(", u.name(attrKey), ")")
	if client != "" {
		// Limits of a client that gave way must not come back without it.
		u.require("attribute_exists(", u.name(openAttr(client)), ")")
	}
	w, err := b.write(ctx, key, u)
	if err != nil {
		return err
	}
	if !w.applied {
		return ErrNotFound
	}
	b.memory.put(key, w.item, 0)
	return nil
}
