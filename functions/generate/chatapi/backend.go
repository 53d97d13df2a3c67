package chatapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/bearer"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

// A backend is a server that calls for its visitors. It proves itself in Authorization, by
// one of its secrets or by a token with its claim, and says in these headers who its
// visitor is: an address, with a user agent, or an id of its own, with a tier.
//
// What it says is believed within its own bounds. Its visitors' keys begin with its name,
// so that they are nobody else's, and all of them together draw on its pool.
const (
	visitorAddress = "X-Visitor-Address"
	visitorAgent   = "X-Visitor-User-Agent"
	visitorID      = "X-Visitor-Id"
	visitorTier    = "X-Visitor-Tier"
)

// maxVisitorID bounds an id, in bytes.
const maxVisitorID = 256

// backendsPage tells how a backend is set up.
const backendsPage = "https://github.com/tokenfuse/tokenfuse/blob/main/docs/backends.md"

// minBackendSecret is the least that cannot be guessed, in characters.
const minBackendSecret = 16

// backends makes what knows the backends.
func (p Parts) backends(ctx context.Context, h *Handler) error {
	h.backends = bearer.New[*policy.Backend]("secret", minBackendSecret)
	for _, name := range p.Policy.BackendNames() {
		b := p.Policy.Backends[name]
		for _, s := range b.Secrets {
			secret, err := p.Secret(ctx, s)
			if err == nil {
				err = h.backends.Add("backend "+name, b, secret)
			}
			if err != nil {
				return fmt.Errorf("backend %s: %w", name, err)
			}
		}
	}
	return nil
}

// backendOf finds the backend that a request is from, for the routes that ask nobody for
// a token; nil: it is from none. What can only be a backend's, and is not proven, is
// refused: it must not be taken for the visitor itself.
func (h *Handler) backendOf(r *http.Request) (*policy.Backend, *openai.Error) {
	if b, _ := h.backends.Of(r.Header); b != nil || len(h.Policy.Backends) == 0 {
		return b, nil
	}
	token, anonymous, err := auth.Bearer(r.Header.Values("Authorization"))
	if isKey := !anonymous && (err != nil || !strings.Contains(token, ".")); !isKey && !namesVisitor(r) {
		return nil, nil
	}
	if err == nil && !anonymous && h.Verifier != nil {
		user, err := h.Verifier.Verify(r.Context(), token)
		if errors.Is(err, auth.ErrUnavailable) {
			return nil, h.signInFailed(err)
		}
		if err == nil {
			if b := h.Policy.Backends[user.Backend]; b != nil {
				return b, nil
			}
		}
	}
	return nil, notProven()
}

// notProven refuses who names a visitor and has not shown to be a backend.
func notProven() *openai.Error {
	return unauthorized(auth.NoBackend, "The Authorization header has neither a backend's secret nor its token, and only a backend may name its visitors ("+backendsPage+").")
}

func namesVisitor(r *http.Request) bool {
	for _, name := range [...]string{visitorAddress, visitorAgent, visitorID, visitorTier} {
		if _, ok := r.Header[name]; ok {
			return true
		}
	}
	return false
}

// visitor is what a backend says of its visitor.
type visitor struct {
	tier  *policy.Tier
	id    string // within the backend; "": known by the signals
	agent bool   // it has said what the visitor's user agent is
	fingerprint.Signals
}

// visitor reads what a backend says of its visitor. Each header may be there once; an empty
// one is as none, since that is how a server sends what it does not know.
func (h *Handler) visitor(r *http.Request, b *policy.Backend) (v visitor, _ *openai.Error) {
	if r.Header.Get("Origin") != "" {
		// Who can read the page's script has the secret. A browser sends Origin, and
		// no server does that calls for itself.
		logger(r.Context()).Warn("a backend's proof was sent with an Origin, as pages send", "backend", b.Name)
		return v, openai.Errorf(openai.OriginNotAllowed, "", "A backend's secret or token must not be in a page, where everybody can read it: call from your server, and leave the visitor's Origin header out (%s).", backendsPage)
	}
	said := map[string]string{}
	for _, name := range [...]string{visitorAddress, visitorAgent, visitorID, visitorTier} {
		values := r.Header.Values(name)
		if len(values) > 1 {
			return v, badVisitor(name, "must be sent once")
		}
		if len(values) == 1 {
			said[name] = values[0]
		}
	}
	if apiErr := h.vouch(&v, b, said[visitorTier]); apiErr != nil {
		return v, apiErr
	}
	switch id, addr := said[visitorID], said[visitorAddress]; {
	case id == "" && addr == "":
		return v, badVisitor(visitorAddress, "or "+visitorID+" must say who the visitor is ("+backendsPage+")")
	case id != "" && addr != "":
		return v, badVisitor(visitorID, "must be left out where there is "+visitorAddress+": a visitor is known by one of them")
	case id != "":
		if len(id) > maxVisitorID || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return v, badVisitor(visitorID, fmt.Sprintf("must be 1 to %d characters of visible ASCII, without spaces; send a hash of anything else", maxVisitorID))
		}
		v.id = id
	case v.tier.Name != policy.Anonymous:
		return v, badVisitor(visitorTier, "goes with "+visitorID+": an address is anonymous")
	default:
		var err error
		if v.Addr, err = fingerprint.ParseSource(strings.TrimSpace(addr)); err != nil {
			return v, badVisitor(visitorAddress, "must be one IP address; of X-Forwarded-For, the entry that your own proxy has added")
		}
		v.UserAgent, v.agent = fingerprint.UserAgent(said[visitorAgent]), said[visitorAgent] != ""
	}
	return v, nil
}

// vouch sets the tier that a backend names, if it may.
func (h *Handler) vouch(v *visitor, b *policy.Backend, tier string) *openai.Error {
	if tier == "" {
		tier = policy.Anonymous
	}
	if v.tier = h.Policy.Tiers[tier]; v.tier == nil || !b.Serves(tier) {
		may := strings.Join(b.Tiers, ", ")
		if h.Policy.Tiers[policy.Anonymous] != nil {
			may = strings.TrimSuffix(policy.Anonymous+", "+may, ", ")
		}
		return badVisitor(visitorTier, "must be one of "+may+", for which this backend may vouch")
	}
	return nil
}

func badVisitor(header, what string) *openai.Error {
	return openai.Errorf(openai.InvalidValue, header, "%s %s.", header, what)
}

// identifyVisitor names the visitor for whom a backend calls: one for whom it vouches by
// the id, others as anonymous callers are.
func (h *Handler) identifyVisitor(r *http.Request, b *policy.Backend) (identity, *openai.Error) {
	v, apiErr := h.visitor(r, b)
	if apiErr != nil {
		return identity{}, apiErr
	}
	if v.tier.Name != policy.Anonymous {
		id := keys.Visitor(b.Name, h.Networks.Account(scoped(b, v.id)))
		return identity{Caller: admission.Caller{Kind: limits.User, ID: id, Tier: v.tier, Backend: b}}, nil
	}
	at, apiErr := h.locateVisitor(r, b, v)
	if apiErr != nil {
		return identity{}, apiErr
	}
	return h.anonymousAt(r, at, v.id == "" && !v.agent)
}

// scoped is a visitor's id as no other backend has it: no name of one has a #.
func scoped(b *policy.Backend, id string) string { return b.Name + "#" + id }

// locateVisitor names what stands for the network of a backend's visitor.
func (h *Handler) locateVisitor(r *http.Request, b *policy.Backend, v visitor) (location, *openai.Error) {
	at := location{backend: b, signals: v.Signals}
	if v.id != "" {
		at.networks, at.client = h.Networks.Visitor(scoped(b, v.id), h.Now(), h.passTTL())
	} else {
		var err error
		if at.networks, err = h.Networks.Networks(v.Addr, h.Now(), h.passTTL()); err != nil {
			return location{}, unknownSource(r, err)
		}
	}
	for i, network := range at.networks {
		at.networks[i] = keys.Visitor(b.Name, network)
	}
	return at, nil
}
