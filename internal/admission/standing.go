package admission

import (
	"context"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/limits"
)

// Standing is how a caller stands at a moment.
type Standing struct {
	Fuse fuse.State
	// Blocked is until when the caller is blocked; zero: not at all.
	Blocked time.Time
	// ChallengeDue: the next call would be asked for a challenge.
	ChallengeDue bool
	Limits       []limits.View // of the tier, then the quotas of the features that are open to it
}

// Standing reads how a caller stands. The only refusal is StoreDown.
func (c *Controller) Standing(ctx context.Context, caller Caller) (Standing, *Refusal) {
	read := c.Fuse.Begin(ctx)
	asking, cancel := c.Allowance().Asking(ctx)
	defer cancel()
	state, err := c.Buckets.Peek(asking, caller.Key())
	setting, fuseErr := read()
	if fuseErr != nil {
		c.Log(ctx).Error("the fuse was never read", "error", fuseErr)
		return Standing{}, &Refusal{Kind: StoreDown}
	}
	if err != nil {
		c.Log(ctx).Error("peek failed", "error", err)
		return Standing{}, &Refusal{Kind: StoreDown}
	}
	s := Standing{Fuse: setting.State}
	if b, blocked := c.blocked(caller, setting); blocked {
		s.Blocked = b.Until
	}
	if blown := c.obey(caller, setting); blown != nil {
		s.ChallengeDue = blown.Kind == ChallengeDue
	}
	share := c.restingShare(caller)
	for _, l := range limits.Of(c.Policy, caller.Tier, caller.Kind) {
		client := ""
		if l.OfClient() {
			client = caller.Client
		}
		status := state.ClientLimit(client, l.Limit)
		if share > 0 && l.Role == limits.OfClient && status.FullIn.Seconds() >= share*l.Period.Seconds() {
			s.ChallengeDue = true
		}
		s.Limits = append(s.Limits, caller.sees(l, status, c.Now()).View())
	}
	return s, nil
}
