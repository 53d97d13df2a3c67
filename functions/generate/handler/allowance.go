package handler

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

// allowance is the time that one request may spend on the store.
type allowance struct{ ask, all time.Time }

// allowance begins now.
func (h *Handler) allowance() allowance {
	ask := time.Now().Add(h.AskTime)
	return allowance{ask, ask.Add(h.TakeBackTime)}
}

// later makes up for time that was not the store's.
func (a allowance) later(d time.Duration) allowance { return allowance{a.ask.Add(d), a.all.Add(d)} }

// asking bounds the questions.
func (a allowance) asking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, a.ask)
}

// takingBack bounds what is done after them. It outlives the request's own context.
func (a allowance) takingBack(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(ctx), a.all)
}
