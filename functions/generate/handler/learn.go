package handler

import (
	"context"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// learn records whose a verified e-mail address is, so that support finds its user. It
// comes after the call or the denial, never before a call, and is a write once a week.
func (h *Handler) learn(ctx context.Context, id identity) {
	if h.Emails == nil || id.email == "" {
		return
	}
	if err := h.Emails.Learn(ctx, id.email, id.id); err != nil {
		logger(ctx).Warn("support cannot find this user by e-mail yet", "error", err)
	}
}

// learnTime bounds how long a denial may wait for learn.
const learnTime = time.Second

// learnDenied is learn for a call that was not admitted: its caller is whom support
// will be asked about. A store that cannot be reached is not asked once more.
func (h *Handler) learnDenied(ctx context.Context, id identity, denial *openai.Error) {
	if denial.Code == openai.StoreUnavailable {
		return
	}
	ctx, cancel := detached(ctx, learnTime)
	defer cancel()
	h.learn(ctx, id)
}
