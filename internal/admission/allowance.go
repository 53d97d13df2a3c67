package admission

import (
	"context"
	"time"
)

const (
	// askTime is what the store may take before a call, all questions together: the pools',
	// the limits', a claim. (The fuse, which is asked beside them, takes 2 s at most.)
	askTime = 2500 * time.Millisecond
	// takeBackTime is what a refusal then has to take back what it can, before the answer
	// ends: Lambda freezes the process after it. What cannot be taken back in time comes
	// back by itself: a hold expires, money is refilled. Together they keep a refusal within
	// 4 s, whatever the store does.
	takeBackTime = 1200 * time.Millisecond
)

// Allowance is the time that one request may spend on the store.
type Allowance struct{ ask, all time.Time }

// Allowance begins now.
func (c *Controller) Allowance() Allowance {
	ask := time.Now().Add(c.AskTime)
	return Allowance{ask, ask.Add(c.TakeBackTime)}
}

// Later makes up for time that was not the store's.
func (a Allowance) Later(d time.Duration) Allowance { return Allowance{a.ask.Add(d), a.all.Add(d)} }

// Asking bounds the questions.
func (a Allowance) Asking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, a.ask)
}

// TakingBack bounds what is done after them. It outlives the request's own context.
func (a Allowance) TakingBack(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(ctx), a.all)
}
