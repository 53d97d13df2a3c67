package chatapi

import (
	"errors"
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

// identity is who is charged, and how support finds them.
type identity struct {
	admission.Caller
	email string // of a user, verified; "" if unknown
}

// shownID is the id as its owner sees it and support needs it.
func (i identity) shownID() string { return i.Kind.ShownID(i.ID) }

// identify tells who calls. A token that is no good is refused; it never makes
// its bearer anonymous.
func (h *Handler) identify(r *http.Request) (identity, *openai.Error) {
	token, anonymous, err := auth.Bearer(r.Header.Values("Authorization"))
	if err == nil && anonymous {
		return h.identifyAnonymous(r)
	}
	var user auth.User
	if err == nil {
		user, err = h.userOf(r, token)
	}
	if err != nil {
		return identity{}, h.signInFailed(err)
	}
	tier := h.tierOf(r.Context(), user.Plans)
	return identity{admission.Caller{Kind: limits.User, ID: user.Subject, Tier: tier}, user.Email}, nil
}

// passHeader carries the pass of a caller who solved a challenge.
const passHeader = "X-Challenge-Pass"

// identifyAnonymous names a caller without a token: by its pass, if it sends
// one, else by its network and client.
func (h *Handler) identifyAnonymous(r *http.Request) (identity, *openai.Error) {
	tier := h.Policy.Tiers[policy.Anonymous]
	if tier == nil {
		return identity{}, unauthorized(auth.NoToken, "A token is needed. Sign in.")
	}
	at, apiErr := h.locate(r)
	if apiErr != nil {
		return identity{}, apiErr
	}
	if token := r.Header.Get(passHeader); token != "" && h.Passes != nil {
		pass, err := h.Passes.Check(token, at.networks...)
		if err != nil {
			return identity{}, h.challengeFailed(r, err)
		}
		caller := admission.Caller{Kind: limits.Pass, ID: pass.ID, Tier: tier, Ends: pass.Expires}
		for _, network := range at.networks {
			caller.Networks = append(caller.Networks, limits.Network.Key(network))
		}
		return identity{Caller: caller}, nil
	}
	client, err := h.Networks.Client(at.signals, h.Now())
	if err != nil {
		return identity{}, unknownSource(r, err)
	}
	caller := admission.Caller{Kind: limits.Network, ID: at.networks[0], Client: client, Tier: tier, Scripted: fingerprint.LacksBrowserHeaders(r)}
	if h.Challenges != nil {
		caller.Jitter = h.Networks.Jitter(client)
	}
	return identity{Caller: caller}, nil
}

// location is where a request comes from.
type location struct {
	signals fingerprint.Signals
	// networks are the keys of its network: today's, and yesterday's while a pass
	// may have been given to that.
	networks []string
}

// locate names the network of a request. The address is that of the connection,
// or what our own distribution says of it; headers that claim another are not
// looked at.
func (h *Handler) locate(r *http.Request) (location, *openai.Error) {
	signals, err := h.Source.Signals(r)
	if err != nil {
		return location{}, unknownSource(r, err)
	}
	networks, err := h.Networks.Networks(signals.Addr, h.Now(), h.passTTL())
	if err != nil {
		return location{}, unknownSource(r, err)
	}
	return location{signals, networks}, nil
}

func unknownSource(r *http.Request, err error) *openai.Error {
	// The owner's mistake if anybody's: a distribution that does not say for whom it
	// asks.
	logger(r.Context()).Error("the source of a request is unknown", "error", err)
	return unauthorized(auth.SourceUnknown, "The source of the request is unknown. Sign in.")
}

// challengeFailed is the refusal of a pass or of a solution.
func (h *Handler) challengeFailed(r *http.Request, err error) *openai.Error {
	var refusal challenge.Refusal
	if errors.As(err, &refusal) {
		e := openai.Errorf(openai.ChallengeFailed, "", "%s", string(refusal))
		e.ChallengeURL = h.challengeURL(r)
		return e
	}
	logger(r.Context()).Error("a challenge could not be checked", "error", err)
	return openai.Unavailable(openai.ChallengeUnavailable, "Challenges cannot be checked at the moment. Try again.")
}

// challengeURL is the absolute address of the challenge, as the caller reaches
// it.
func (h *Handler) challengeURL(r *http.Request) string { return h.base(r) + challengePath }
