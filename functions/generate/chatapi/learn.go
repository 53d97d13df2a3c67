package chatapi

import (
	"context"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
)

// learn records whose a verified e-mail address is, so that support finds its user. It
// comes after the call or the denial, never before a call, and is a write once a week.
func (h *Handler) learn(ctx context.Context, id identity) {
	if h.Emails == nil || id.email == "" {
		return
	}
	if err := h.Emails.Learn(ctx, id.email, id.ID); err != nil {
		logger(ctx).Warn("support cannot find this user by e-mail yet", "error", err)
	}
}

// learnTime bounds how long a denial may wait for learn.
const learnTime = time.Second

// learnDenied is learn for a call that was not admitted: its caller is whom support
// will be asked about. A store that cannot be reached is not asked once more.
func (h *Handler) learnDenied(ctx context.Context, id identity, refusal *admission.Refusal) {
	if refusal.Kind == admission.StoreDown {
		return
	}
	ctx, cancel := detached(ctx, learnTime)
	defer cancel()
	h.learn(ctx, id)
}

// detached is a context that outlives its parent, for a bounded time.
func detached(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
