package chatapi

import (
	"errors"
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/keys"
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

// caller is who calls, whom the log is told of, too.
func (h *Handler) caller(r *http.Request, e *entry) (identity, *openai.Error) {
	id, err := h.identify(r)
	if err == nil {
		e.identify(id)
	}
	return id, err
}

// identify tells who calls. A token that is no good is refused; it never makes
// its bearer anonymous.
func (h *Handler) identify(r *http.Request) (identity, *openai.Error) {
	if b, _ := h.backends.Of(r.Header); b != nil {
		return h.identifyVisitor(r, b)
	}
	token, anonymous, err := auth.Bearer(r.Header.Values("Authorization"))
	if err == nil && anonymous {
		return h.identifyAnonymous(r)
	}
	var user auth.User
	if err == nil {
		user, err = h.userOf(r, token)
	}
	if errors.Is(err, auth.ErrInvalid) && len(h.Policy.Backends) > 0 && namesVisitor(r) {
		return identity{}, notProven()
	}
	if err != nil {
		return identity{}, h.signInFailed(err)
	}
	if b := h.Policy.Backends[user.Backend]; b != nil {
		return h.identifyVisitor(r, b)
	}
	tier := h.tierOf(r.Context(), user.Plans)
	return identity{admission.Caller{Kind: limits.User, ID: user.Subject, Tier: tier}, user.Email}, nil
}

// passHeader carries the pass of a caller who solved a challenge.
const passHeader = "X-Challenge-Pass"

// identifyAnonymous names a caller without a token: by its pass, if it sends
// one, else by its network and client.
func (h *Handler) identifyAnonymous(r *http.Request) (identity, *openai.Error) {
	at, apiErr := h.locate(r)
	if apiErr != nil {
		return identity{}, apiErr
	}
	return h.anonymousAt(r, at, fingerprint.LacksBrowserHeaders(r))
}

// anonymousAt is the anonymous caller at a location.
func (h *Handler) anonymousAt(r *http.Request, at location, scripted bool) (identity, *openai.Error) {
	tier := h.Policy.Tiers[policy.Anonymous]
	if token := r.Header.Get(passHeader); token != "" && h.Passes != nil {
		pass, err := h.Passes.Check(token, at.networks...)
		if err != nil {
			return identity{}, h.challengeFailed(r, err)
		}
		caller := admission.Caller{Kind: limits.Pass, ID: at.own(pass.ID), Tier: tier, Backend: at.backend, Ends: pass.Expires}
		for _, network := range at.networks {
			caller.Networks = append(caller.Networks, limits.Network.Key(network))
		}
		return identity{Caller: caller}, nil
	}
	client, err := h.clientOf(at)
	if err != nil {
		return identity{}, unknownSource(r, err)
	}
	caller := admission.Caller{Kind: limits.Network, ID: at.networks[0], Client: client, Tier: tier, Scripted: scripted, Backend: at.backend}
	if h.Challenges != nil {
		caller.Jitter = h.Networks.Jitter(client)
	}
	return identity{Caller: caller}, nil
}

// location is where a request comes from, or the visitor for whom a backend sends it.
type location struct {
	backend *policy.Backend // nil: the caller is its own
	client  string          // whom a backend knows by an id: that one's key; else by the signals
	signals fingerprint.Signals
	// networks are the keys of its network: today's, and yesterday's while a pass
	// may have been given to that.
	networks []string
}

// own is the id of something that belongs to who is at the location.
func (at location) own(id string) string {
	if at.backend != nil {
		return keys.Visitor(at.backend.Name, id)
	}
	return id
}

// clientOf tells the callers of a location's network apart.
func (h *Handler) clientOf(at location) (string, error) {
	if at.client != "" {
		return at.client, nil
	}
	return h.Networks.Client(at.signals, h.Now())
}

// locate names the network of a request. The address is that of the connection,
// or what our own distribution says of it; headers that claim another are not
// looked at.
func (h *Handler) locate(r *http.Request) (location, *openai.Error) {
	b, apiErr := h.backendOf(r)
	if apiErr != nil {
		return location{}, apiErr
	}
	if b != nil {
		v, apiErr := h.visitor(r, b)
		if apiErr != nil {
			return location{}, apiErr
		}
		return h.locateVisitor(r, b, v)
	}
	if h.Policy.Tiers[policy.Anonymous] == nil {
		return location{}, unauthorized(auth.NoToken, "A token is needed. Sign in.")
	}
	signals, err := h.Source.Signals(r)
	if err != nil {
		return location{}, unknownSource(r, err)
	}
	networks, err := h.Networks.Networks(signals.Addr, h.Now(), h.passTTL())
	if err != nil {
		return location{}, unknownSource(r, err)
	}
	return location{signals: signals, networks: networks}, nil
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
