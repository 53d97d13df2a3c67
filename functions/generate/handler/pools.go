package handler

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// purse is the money that the pools set aside for one call.
type purse []*bucket.PoolReservation

// setAside takes the worst case of a call from each pool that it draws on. If one
// denies, the purse holds what the others gave.
func (h *Handler) setAside(ctx context.Context, t *policy.Tier, amount price.Pico) (purse, *openai.Error) {
	var p purse
	if amount == 0 {
		return nil, nil // a free model
	}
	for _, pool := range h.Policy.PoolsFor(t) {
		r, denial, err := h.Pools[pool.Name].Reserve(ctx, int64(amount))
		if r != nil {
			p = append(p, r)
			continue
		}
		if err != nil {
			logger(ctx).Error("drawing from a pool failed", "pool", pool.Name, "error", err)
			return p, openai.Unavailable(openai.StoreUnavailable, "The call could not be admitted at the moment. Try again.")
		}
		logger(ctx).Warn("spend ceiling reached", "pool", pool.Name, "retry_after", denial.RetryAfter.String())
		e := openai.Errorf(openai.SpendCeilingReached, "", "This service has reached its spending limit. You can ask again in %s.", inWords(denial.RetryAfter))
		e.RetryAfter = max(time.Second, denial.RetryAfter)
		return p, e
	}
	return p, nil
}

// settle gives back what was not used. Money that fails to come back is refilled
// in time. ctx bounds all of it and should not be the request's own.
func (p purse) settle(ctx context.Context, used price.Pico) {
	for _, r := range p {
		if err := r.Settle(ctx, int64(used)); err != nil {
			logger(ctx).Warn("settling with a pool failed: its money is refilled in time", "error", err)
		}
	}
}

// poolUsed is the share of a tier's own pool that is committed, as far as this
// process knows.
func (h *Handler) poolUsed(t *policy.Tier) float64 {
	if p := h.Pools[t.Pool]; p != nil {
		return min(1, p.Used())
	}
	return 0
}

// obey holds a caller against the fuse.
func (h *Handler) obey(r *http.Request, id identity, s fuse.Setting, err error) *openai.Error {
	switch {
	case errors.Is(r.Context().Err(), context.Canceled):
		return openai.Errorf(openai.CallerLeft, "", "The answer was not taken in time. Nothing was taken from your quota.")
	case err != nil:
		logger(r.Context()).Error("the fuse was never read", "error", err)
		return openai.Unavailable(openai.StoreUnavailable, "The call could not be admitted at the moment. Try again.")
	case s.State == fuse.Open, s.State == fuse.AnonymousOff && id.kind != limits.User:
		e := openai.Errorf(openai.FuseOpen, "", "This service is switched off for the moment.")
		e.RetryAfter = time.Minute
		if !s.Until.IsZero() {
			e.RetryAfter = max(time.Second, s.Until.Sub(h.Now()))
		}
		e.Message += " You can ask again in " + inWords(e.RetryAfter) + "."
		return e
	case s.State == fuse.Challenge && id.kind == limits.Network && h.Challenges != nil:
		return h.required(r)
	}
	return nil
}

// required asks for a solved challenge.
func (h *Handler) required(r *http.Request) *openai.Error {
	e := openai.Errorf(openai.ChallengeRequired, "", "Please solve a challenge first; then you can go on at once.")
	e.ChallengeURL = h.challengeURL(r)
	return e
}

// detached is a context that outlives its parent, for a bounded time.
func detached(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
