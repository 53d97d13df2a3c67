package bucket

import "context"

// clearCredits times the period is what a clear adds to a limit's credits: more
// than any open reservation's fence allows, so that a settle of one that was made
// before the clear gives nothing back into the new state.
const clearCredits = 16

// Clear makes limits of an identity full. Open calls stay open and settle as
// ever, but give nothing back to what was cleared. ErrNotFound if there is no such
// identity: none is made. Processes that remember a denial may repeat it for up to
// a second.
func (b *Buckets) Clear(ctx context.Context, key string, limits ...Limit) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.ReserveTimeout)
	defer cancel()
	u := newUpdate()
	zero, now := u.number(0), u.number(b.now())
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			return err
		}
		u.setTo(u.name(tatAttr("", l.Name, l.period())), " = ", zero)
		if l.Return != Never {
			g := u.name(creditsAttr("", l.Name, l.period()))
			u.setTo(g, " = if_not_exists(", g, ", ", zero, ") + ", u.number(clearCredits*l.period()))
		}
		u.setTo(u.name(clearedAttr(l.Name)), " = ", now)
	}
	if len(limits) == 0 {
		return nil
	}
	u.require("attribute_exists(", u.name(attrKey), ")")
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
