package admission

import "github.com/tokenfuse/tokenfuse/internal/limits"

// softShare is the share of a client's limits beyond which it is challenged, or 0 for
// never. It differs by client and day, so that it cannot be read off, and each sign of a
// script halves it.
func (c *Controller) softShare(caller Caller, call *Call) float64 {
	share := c.restingShare(caller)
	if share == 0 {
		return 0
	}
	for _, sign := range []bool{
		call.TooMuch || call.Input >= caller.Tier.MaxInputTokens,
		caller.Scripted,
		c.networkBusy(caller, call.Offer),
		c.PoolUsed(caller.Tier, caller.Backend) > 0.5,
	} {
		if sign {
			share /= 2
		}
	}
	return min(share, 0.999)
}

// restingShare is the soft share of a caller that shows no sign of a script.
func (c *Controller) restingShare(caller Caller) float64 {
	share := caller.Tier.ChallengeAt
	if caller.Kind != limits.Network || !c.Challenges || share <= 0 || share >= 1 {
		return 0
	}
	return share * caller.Jitter
}

// networkBusy reports whether more than half of a network's limits is used, as far as
// this process knows.
func (c *Controller) networkBusy(caller Caller, o *Offer) bool {
	state := c.Buckets.Recall(caller.Key())
	for _, l := range o.Limits {
		if l.Role == limits.OfNetwork && state.Limit(l.Limit).Remaining < l.Capacity/2 {
			return true
		}
	}
	return false
}
