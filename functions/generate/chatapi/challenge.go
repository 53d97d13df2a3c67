package chatapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

const challengePath = "/v1/challenge"

func (h *Handler) passTTL() time.Duration {
	if t := h.Policy.Tiers[policy.Anonymous]; t != nil && t.Passes != nil {
		return t.Passes.TTL
	}
	return 0
}

const noChallenge = "There are no challenges here."

// newChallenge answers GET /v1/challenge.
func (h *Handler) newChallenge(w http.ResponseWriter, r *http.Request, _ *entry) *openai.Error {
	switch {
	case h.Challenges == nil:
		return openai.Errorf(openai.NotFound, "", noChallenge)
	case h.Altcha == nil:
		c := h.Policy.Challenge
		openai.Answer(w, map[string]string{"kind": c.Kind, "site_key": c.SiteKey})
		return nil
	}
	at, apiErr := h.locate(r)
	if apiErr != nil {
		return apiErr
	}
	c, err := h.Altcha.Create(at.networks[0], h.admission.PoolUsed(h.Policy.Tiers[policy.Anonymous], at.backend))
	if err != nil {
		return h.challengeFailed(r, err)
	}
	openai.Answer(w, c)
	return nil
}

// solveChallenge answers POST /v1/challenge: a solution for a pass. The solution is
// claimed first, so that one that is sent again costs one write, and none in a process
// that knows it. From then on a crash or a refusal can cost a solution or one of the
// network's passes, but never makes a pass for nothing. A network that has no passes left
// is refused before: that denial takes nothing, and the solution is good once there are.
func (h *Handler) solveChallenge(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	if h.Challenges == nil {
		return openai.Errorf(openai.NotFound, "", noChallenge)
	}
	body, apiErr := openai.ReadBody(r, openai.MaxText)
	if apiErr != nil {
		return apiErr
	}
	at, apiErr := h.locate(r)
	if apiErr != nil {
		return apiErr
	}
	payload, apiErr := parsePayload(body)
	if apiErr != nil {
		return apiErr
	}
	tier, allowed := h.Policy.Tiers[policy.Anonymous], h.admission.Allowance()
	id := identity{Caller: admission.Caller{Kind: limits.Network, ID: at.networks[0], Tier: tier}}
	e.identify(id)
	solution, allowed, apiErr := h.verify(r, at, payload, allowed)
	if apiErr != nil {
		return apiErr
	}
	if h.Used.Knows(solution) {
		return h.challengeFailed(r, challenge.ErrUsed)
	}

	asking, cancel := allowed.Asking(r.Context())
	defer cancel()
	passes := limits.OfPasses(tier.Passes).Limit
	state, err := h.admission.Buckets.Peek(asking, id.Key())
	if err != nil {
		return h.notCheckable(r, err)
	}
	if s := state.Limit(passes); s.Remaining < 1 {
		return tooManyChallenges(bucket.Denial{Limit: passes, Requested: 1, RetryAfter: s.NextIn})
	}
	if err := h.Used.Claim(asking, solution); err != nil {
		return h.challengeFailed(r, err)
	}
	if apiErr := h.take(r, allowed, bucket.Request{Key: id.Key(), Charges: []bucket.Charge{{Limit: passes, Cost: 1}}}); apiErr != nil {
		return apiErr
	}
	issued, token := h.Passes.Issue(at.networks[0])
	openai.Answer(w, struct {
		Verified  bool   `json:"verified"`
		Payload   string `json:"payload"` // where ALTCHA's widget looks for it
		Pass      string `json:"pass"`
		ExpiresAt int64  `json:"expires_at"`
	}{true, token, token, issued.Expires.Unix()})
	return nil
}

// verify checks a solution for today's network, or for yesterday's if the challenge
// was given to that. A third party is asked within bounds, and its time is added to the
// allowance.
func (h *Handler) verify(r *http.Request, at location, payload string, allowed admission.Allowance) (s challenge.Solution, _ admission.Allowance, apiErr *openai.Error) {
	if h.Altcha == nil {
		if apiErr := h.mayAsk(r, at, allowed); apiErr != nil {
			return s, allowed, apiErr
		}
	}
	begun, err := time.Now(), error(nil)
	for _, network := range at.networks {
		s, err = h.Challenges.Verify(r.Context(), network, at.address(), payload)
		if !errors.Is(err, challenge.ErrStolen) {
			break
		}
	}
	if err != nil {
		if refusal := challenge.Refusal(""); h.Altcha == nil && errors.As(err, &refusal) {
			h.refusedBy(at)
		}
		return s, allowed, h.challengeFailed(r, err)
	}
	return s, allowed.Later(time.Since(begun)), nil
}

// address is whose solution it is, as a third party asks; "" if a backend does not say.
func (at location) address() string {
	if !at.signals.Addr.IsValid() {
		return ""
	}
	return at.signals.Addr.String()
}

// parsePayload reads {"payload": "…"}; a widget sends more beside it.
func parsePayload(body []byte) (string, *openai.Error) {
	members, apiErr := openai.ParseObject(body)
	if apiErr != nil {
		return "", apiErr
	}
	return members.Text("payload", maxPayload) // if it is missing, the verifier says so
}

// maxPayload bounds a payload, in bytes.
const maxPayload = 16 << 10

const (
	// maxNetworkCalls bounds the calls of a network where the policy does not.
	maxNetworkCalls = bucket.MaxInFlight
	// takeTime is how long what is taken may stay open.
	takeTime = 15 * time.Second
)

// take takes what a request to a network's buckets charges, for good.
func (h *Handler) take(r *http.Request, allowed admission.Allowance, req bucket.Request) *openai.Error {
	asking, cancel := allowed.Asking(r.Context())
	defer cancel()
	req.MaxInFlight, req.Deadline = maxNetworkCalls, h.Now().Add(takeTime)
	d, err := h.admission.Buckets.Reserve(asking, req)
	if err != nil {
		return h.notCheckable(r, err)
	}
	if d.Reservation == nil {
		return tooManyChallenges(d.Denials...)
	}
	settling, cancel := allowed.TakingBack(r.Context())
	defer cancel()
	used := make([]int64, len(req.Charges))
	for i, c := range req.Charges {
		used[i] = c.Cost
	}
	if err := d.Reservation.Settle(settling, used); err != nil {
		logger(r.Context()).Error("settle failed: the hold expires by itself", "reservation", d.Reservation.ID(), "error", err)
	}
	return nil
}

func (h *Handler) notCheckable(r *http.Request, err error) *openai.Error {
	logger(r.Context()).Error("reserve failed", "error", err)
	return storeDown("The challenge could not be checked")
}
