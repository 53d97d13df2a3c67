package admission

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/limits"
)

// throughFuse takes what a call needs, if the fuse lets its caller through. A state that
// is known refuses before anything is taken. One that must be read is read beside the
// taking, and its refusal comes first; it is read before if what was known last refuses.
func (a *Admission) throughFuse(ctx context.Context) *Refusal {
	c := a.c
	last, fresh := c.Fuse.Fresh()
	refused := c.obey(a.Caller, last)
	if fresh {
		if refused != nil {
			return refused
		}
		return a.take(ctx)
	}
	read := sync.OnceValues(c.Fuse.Begin(ctx))
	defer func() { _, _ = read() }() // on every way out, or it would be under way when Lambda freezes us
	var refusal *Refusal
	if refused == nil {
		refusal = a.take(ctx)
	}
	setting, err := read()
	if err != nil {
		c.Log(ctx).Error("the fuse was never read", "error", err)
		return &Refusal{Kind: StoreDown}
	}
	if blown := c.obey(a.Caller, setting); blown != nil {
		return blown
	}
	if refused != nil {
		return a.take(ctx)
	}
	return refusal
}

// Warm reads the fuse, and so connects to the store. It waits for that until ctx ends.
func (c *Controller) Warm(ctx context.Context) {
	read := make(chan struct{})
	wait := c.Fuse.Begin(ctx)
	go func() { defer close(read); _, _ = wait() }()
	select {
	case <-read:
	case <-ctx.Done():
	}
}

// obey holds a caller against the fuse.
func (c *Controller) obey(caller Caller, s fuse.Status) *Refusal {
	if b, blocked := c.blocked(caller, s); blocked {
		return &Refusal{Kind: Blocked, Until: b.Until}
	}
	switch {
	case s.State == fuse.Open, s.State == fuse.AnonymousOff && caller.Kind != limits.User:
		r := &Refusal{Kind: SwitchedOff, Wait: time.Minute}
		if !s.Until.IsZero() {
			r.Wait = max(time.Second, s.Until.Sub(c.Now()))
		}
		return r
	case s.State == fuse.Challenge && caller.Kind == limits.Network && c.Challenges:
		return &Refusal{Kind: ChallengeDue}
	}
	return nil
}

// blocked is the block of a caller. Who holds a pass is blocked with the network that got
// it, too: else a blocked network would need no more than a solved challenge.
func (c *Controller) blocked(caller Caller, s fuse.Status) (fuse.Block, bool) {
	if len(s.Blocks) == 0 {
		return fuse.Block{}, false // as nearly always
	}
	return s.Blocks.Of(c.Now(), append(slices.Clone(caller.Networks), caller.Key())...)
}
