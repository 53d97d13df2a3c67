package admission

import (
	"context"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// purse is the money that the pools set aside for one call.
type purse []*bucket.PoolReservation

// setAside takes the worst case of a call from each pool that it draws on. If one
// denies, the purse holds what the others gave.
func (c *Controller) setAside(ctx context.Context, caller Caller, amount price.Pico) (purse, *Refusal) {
	var p purse
	if amount == 0 {
		return nil, nil // a free model
	}
	pools := c.Policy.PoolsFor(caller.Tier)
	if caller.Backend != nil {
		pools = append(pools, caller.Backend.Pool)
	}
	for _, pool := range pools {
		r, denial, err := c.Pools[pool.Name].Reserve(ctx, int64(amount))
		switch {
		case r != nil:
			p = append(p, r)
		case err != nil:
			c.Log(ctx).Error("drawing from a pool failed", "pool", pool.Name, "error", err)
			return p, &Refusal{Kind: StoreDown}
		default:
			c.Log(ctx).Warn("spend ceiling reached", "pool", pool.Name, "retry_after", denial.RetryAfter.String())
			return p, &Refusal{Kind: CeilingReached, Wait: denial.RetryAfter}
		}
	}
	return p, nil
}

// settlePurse gives back what was not used. Money that fails to come back is refilled
// in time. ctx bounds all of it and should not be the request's own.
func (c *Controller) settlePurse(ctx context.Context, p purse, used price.Pico) {
	for _, r := range p {
		if err := r.Settle(ctx, int64(used)); err != nil {
			c.Log(ctx).Warn("settling with a pool failed: its money is refilled in time", "error", err)
		}
	}
}

// Release gives back what this process holds of the pools, for a process that ends.
func (c *Controller) Release(ctx context.Context) {
	for name, p := range c.Pools {
		if err := p.Release(ctx); err != nil {
			c.Log(ctx).Warn("a pool's money did not go back: it is refilled in time", "pool", name, "error", err)
		}
	}
}

// PoolUsed is the share that is committed, as far as this process knows, of a tier's own
// pool or of a backend's, whichever is used more: 0 to 1. The backend may be nil.
func (c *Controller) PoolUsed(t *policy.Tier, b *policy.Backend) (share float64) {
	pools := []*bucket.Pool{c.Pools[t.Pool]}
	if b != nil {
		pools = append(pools, c.Pools[b.Pool.Name])
	}
	for _, p := range pools {
		if p != nil {
			share = max(share, min(1, p.Used()))
		}
	}
	return share
}
