package chatapi

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// userOf says whose a token is.
func (h *Handler) userOf(r *http.Request, token string) (auth.User, error) {
	if h.Verifier == nil {
		return auth.User{}, &auth.RefusedError{Reason: auth.NotAccepted}
	}
	user, err := h.Verifier.Verify(r.Context(), token)
	if user.EmailUnsaid && !h.unsaid.Swap(true) {
		logger(r.Context()).Warn("users cannot be found by e-mail address: their tokens do not say that it is verified; see email_verified")
	}
	return user, err
}

// signInFailed answers who meant to be somebody and is not.
func (h *Handler) signInFailed(err error) *openai.Error {
	switch reason := auth.ReasonOf(err); {
	case errors.Is(err, auth.ErrUnavailable):
		return openai.Unavailable(openai.KeysUnavailable, "Tokens cannot be checked at the moment. Try again.")
	case errors.Is(err, auth.ErrExpired):
		e := unauthorized(reason, "The token has expired. Sign in again.")
		e.Code = openai.TokenExpired
		return e
	case reason == auth.NotAccepted:
		return unauthorized(reason, "Tokens are not accepted here. "+h.keyToSend())
	case reason == auth.ProviderKey:
		return unauthorized(reason, "The key of a model provider does not belong here: whoever sees it can use it. "+h.keyToSend())
	case reason == auth.Opaque, reason == auth.NotBearer:
		return unauthorized(reason, "The Authorization header has no valid token. "+h.keyToSend())
	default:
		return unauthorized(reason, "The Authorization header has no valid token.")
	}
}

// keyToSend says what callers may send in place of what they did.
func (h *Handler) keyToSend() string {
	if len(h.Policy.Backends) > 0 {
		return h.keyOfOne() + " A backend sends its secret."
	}
	return h.keyOfOne()
}

// keyOfOne is the key of somebody who calls for themselves.
func (h *Handler) keyOfOne() string {
	switch anonymous := h.Policy.Tiers[policy.Anonymous] != nil; {
	case h.Verifier == nil:
		return "Send the key anonymous, or none."
	case anonymous:
		return "Send the token of a user who has signed in, or the key anonymous."
	}
	return "Send the token of a user who has signed in."
}

// unauthorized is a 401, with its reason for the log.
func unauthorized(reason auth.Reason, message string) *openai.Error {
	return &openai.Error{Code: openai.InvalidToken, Message: message, Reason: string(reason)}
}

// tierOf is the tier of a user with these plans. Plans of which none names a tier are told
// to the log: most likely it is a mistake in the configuration.
func (h *Handler) tierOf(ctx context.Context, plans []string) *policy.Tier {
	tier, named := h.Policy.TierOf(plans)
	for _, plan := range plans {
		if plan != "" && !named && h.plans.first(plan) {
			logger(ctx).Warn("a plan names no tier: its users are of tier user", "plan", openai.Clip(plan))
		}
	}
	return tier
}

// strangers are the plans that named no tier, as many as are told.
type strangers struct {
	mu   sync.Mutex
	seen map[string]bool
}

// mostStrangers bounds what one process says: a claim may have a value for every user.
const mostStrangers = 32

// first reports a plan that is to be told, once.
func (s *strangers) first(plan string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[plan] || len(s.seen) >= mostStrangers {
		return false
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[plan] = true
	return true
}
