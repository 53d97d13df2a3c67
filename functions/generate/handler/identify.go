package handler

import (
	"errors"
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

// identity is who is charged.
type identity struct {
	kind string // user or anonymous
	id   string // the subject, or an opaque key of the network
	tier *policy.Tier
}

// key is the partition key of the identity's buckets.
func (i identity) key() string {
	if i.kind == kindUser {
		return "user#" + i.id
	}
	return "net#" + i.id
}

const (
	kindUser      = "user"
	kindAnonymous = "anonymous"
)

// identify tells who calls. A token that is no good is refused; it never makes
// its bearer anonymous.
func (h *Handler) identify(r *http.Request) (identity, *apiError) {
	token, anonymous, err := auth.Bearer(r.Header.Values("Authorization"))
	if err == nil && anonymous {
		return h.network(r)
	}
	if err == nil && h.Verifier == nil {
		return identity{}, refuse(invalidToken, "", "Tokens are not accepted here.")
	}
	var user auth.User
	if err == nil {
		user, err = h.Verifier.Verify(r.Context(), token)
	}
	switch {
	case errors.Is(err, auth.ErrExpired):
		return identity{}, refuse(tokenExpired, "", "The token has expired. Sign in again.")
	case errors.Is(err, auth.ErrUnavailable):
		return identity{}, unavailable(keysUnavailable, "Tokens cannot be checked at the moment. Try again.")
	case err != nil:
		return identity{}, refuse(invalidToken, "", "The Authorization header has no valid token.")
	}
	tier := h.Policy.Tiers[policy.User]
	if plan := h.Policy.Tiers[user.Plan]; plan != nil && plan.Name != policy.Anonymous {
		tier = plan
	}
	return identity{kind: kindUser, id: user.Subject, tier: tier}, nil
}

// network names an anonymous caller by its network. The address is that of the
// connection; headers that claim another are not looked at.
func (h *Handler) network(r *http.Request) (identity, *apiError) {
	tier := h.Policy.Tiers[policy.Anonymous]
	if tier == nil {
		return identity{}, refuse(invalidToken, "", "A token is needed. Sign in.")
	}
	addr, err := fingerprint.ParseSource(r.RemoteAddr)
	if err != nil {
		return identity{}, refuse(invalidToken, "", "The source of the request is unknown. Sign in.")
	}
	id, err := h.Networks.Network(addr, h.Now())
	if err != nil {
		return identity{}, refuse(invalidToken, "", "The source of the request is unknown. Sign in.")
	}
	return identity{kind: kindAnonymous, id: id, tier: tier}, nil
}
