package handler

import (
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

const challengePath = "/v1/challenge"

// siteverifies bounds, by network, the calls to a third party that somebody else
// can make us make.
var siteverifies = bucket.Limit{Name: policy.LimitSiteverify, Capacity: 20, Period: time.Minute, Return: bucket.Never}

func (h *Handler) passTTL() time.Duration {
	if t := h.Policy.Tiers[policy.Anonymous]; t != nil && t.Passes != nil {
		return t.Passes.TTL
	}
	return 0
}

const noChallenge = "There are no challenges here."

// newChallenge answers GET /v1/challenge.
func (h *Handler) newChallenge(w http.ResponseWriter, r *http.Request, _ *entry) *apiError {
	switch {
	case h.Challenges == nil:
		return refuse(notFound, "", noChallenge)
	case h.Altcha == nil:
		c := h.Policy.Challenge
		answerJSON(w, map[string]string{"kind": c.Kind, "site_key": c.SiteKey})
		return nil
	}
	at, apiErr := h.locate(r)
	if apiErr != nil {
		return apiErr
	}
	c, err := h.Altcha.Create(at.networks[0], h.poolUsed(h.Policy.Tiers[policy.Anonymous]))
	if err != nil {
		return h.challengeFailed(r, err)
	}
	answerJSON(w, c)
	return nil
}

// solveChallenge answers POST /v1/challenge: a solution for a pass. The order is
// such that a crash or a refusal between any two steps can cost a solution or one
// of the network's passes, but never make a pass for nothing.
func (h *Handler) solveChallenge(w http.ResponseWriter, r *http.Request, e *entry) *apiError {
	if h.Challenges == nil {
		return refuse(notFound, "", noChallenge)
	}
	body, apiErr := readBody(r)
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
	ctx, tier, network := r.Context(), h.Policy.Tiers[policy.Anonymous], "net#"+at.networks[0]
	e.identify(identity{kind: limits.Network, id: at.networks[0], tier: tier})
	if h.Altcha == nil {
		asked, apiErr := h.charge(r, network, siteverifies, policy.Requests)
		if apiErr != nil {
			return apiErr
		}
		asked.settle(1)
	}
	solution, err := h.verify(r, at, payload)
	if err != nil {
		return h.challengeFailed(r, err)
	}
	pass, apiErr := h.charge(r, network, limits.OfPasses(tier.Passes).Limit, policy.Requests)
	if apiErr != nil {
		return apiErr
	}
	if err := h.Used.Claim(ctx, solution); err != nil {
		pass.settle(0)
		return h.challengeFailed(r, err)
	}
	pass.settle(1)
	issued, token := h.Passes.Issue(at.networks[0])
	answerJSON(w, struct {
		Verified  bool   `json:"verified"`
		Payload   string `json:"payload"` // where ALTCHA's widget looks for it
		Pass      string `json:"pass"`
		ExpiresAt int64  `json:"expires_at"`
	}{true, token, token, issued.Expires.Unix()})
	return nil
}

// verify checks a solution for today's network, or for yesterday's if the
// challenge was given to that.
func (h *Handler) verify(r *http.Request, at location, payload string) (s challenge.Solution, err error) {
	for _, network := range at.networks {
		s, err = h.Challenges.Verify(r.Context(), network, at.signals.Addr.String(), payload)
		if err != challenge.ErrStolen {
			break
		}
	}
	return s, err
}

// parsePayload reads {"payload": "…"}; a widget sends more beside it.
func parsePayload(body []byte) (string, *apiError) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return "", refuse(invalidJSON, "", "The body is not valid JSON.")
	}
	members, apiErr := object(body, "")
	if apiErr != nil {
		return "", apiErr
	}
	for _, m := range members {
		if m.Name == "payload" && !isNull(m.Value) {
			return field{"payload", m.Value}.text(maxPayload)
		}
	}
	return "", nil // the verifier says that it is missing
}

// maxPayload bounds a payload, in bytes.
const maxPayload = 16 << 10

// takenUnit is one unit taken from a limit of a network.
type takenUnit struct {
	h           *Handler
	r           *http.Request
	reservation *bucket.Reservation
}

// charge takes one unit of a limit of a network.
func (h *Handler) charge(r *http.Request, key string, l bucket.Limit, unit policy.Unit) (takenUnit, *apiError) {
	d, err := h.Buckets.Reserve(r.Context(), bucket.Request{
		Key: key, Charges: []bucket.Charge{{Limit: l, Cost: 1}},
		MaxInFlight: maxNetworkCalls, Deadline: h.Now().Add(chargeTime),
	})
	if err != nil {
		logger(r.Context()).Error("reserve failed", "error", err)
		return takenUnit{}, unavailable(storeUnavailable, "The challenge could not be checked at the moment. Try again.")
	}
	if d.Reservation == nil {
		denial := d.Denials[0]
		wait := retryAfter(denial)
		return takenUnit{}, &apiError{code: rateLimitExceeded, retryAfter: wait,
			message: "Too many challenges were solved from your network. You can ask again in " + inWords(wait) + ".",
			limit: &limitError{Limit: denial.Limit.Name, Unit: string(unit), RetryAfter: ceilSeconds(wait),
				Requested: denial.Requested, Remaining: denial.Remaining}}
	}
	return takenUnit{h, r, d.Reservation}, nil
}

const (
	// maxNetworkCalls bounds the calls of a network where the policy does not.
	maxNetworkCalls = bucket.MaxInFlight
	// chargeTime is how long a charge may stay open.
	chargeTime = 15 * time.Second
)

func (c takenUnit) settle(used int64) {
	ctx, cancel := detached(c.r.Context(), settleTime)
	defer cancel()
	if err := c.reservation.Settle(ctx, []int64{used}); err != nil {
		logger(ctx).Error("settle failed: the hold expires by itself", "reservation", c.reservation.ID(), "error", err)
	}
}

// softShare is the share of a client's limits beyond which it is challenged, or 0
// for never. It differs by client and day, so that it cannot be read off, and
// each sign of a script halves it.
func (h *Handler) softShare(r *http.Request, id identity, o *offer, c *capped) float64 {
	share := h.restingShare(id)
	if share == 0 {
		return 0
	}
	for _, sign := range []bool{
		c.dropped > 0 || c.input >= id.tier.MaxInputTokens,
		fingerprint.LacksBrowserHeaders(r),
		h.networkBusy(id, o),
		h.poolUsed(id.tier) > 0.5,
	} {
		if sign {
			share /= 2
		}
	}
	return min(share, 0.999)
}

// restingShare is the soft share of a caller that shows no sign of a script.
func (h *Handler) restingShare(id identity) float64 {
	share := id.tier.ChallengeAt
	if id.kind != limits.Network || h.Challenges == nil || share <= 0 || share >= 1 {
		return 0
	}
	return share * h.Networks.Jitter(id.client)
}

// networkBusy reports whether more than half of a network's limits is used, as
// far as this process knows.
func (h *Handler) networkBusy(id identity, o *offer) bool {
	state := h.Buckets.Recall(id.key())
	for _, l := range o.limits {
		if l.Network && state.Limit(l.Limit).Remaining < l.Capacity/2 {
			return true
		}
	}
	return false
}
