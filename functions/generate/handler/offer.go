package handler

import (
	"fmt"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// offer is a feature as it is open to a kind of caller of a tier: all that can be
// known before a request comes.
type offer struct {
	feature   *policy.Feature
	tier      *policy.Tier
	kind      kind
	model     *policy.Model
	provider  provider.Provider
	tokenizer *tokens.Tokenizer
	baseInput int64 // tokens of the system prompt and of the framing of any request
	limits    []limit
	policy    string // the RateLimit-Policy header
}

// limit is a limit of the caller: the rule for the bucket, and what it counts.
type limit struct {
	bucket.Limit
	unit    policy.Unit
	quota   bool // a number of results
	network bool // of a whole network of anonymous callers
	client  bool // of one client in it
	pass    bool // the number of calls that a pass is good for
}

func newOffer(f *policy.Feature, t *policy.Tier, k kind, p provider.Provider) (*offer, error) {
	tokenizer, err := tokens.New(f.Model.Tokenizer)
	if err != nil {
		return nil, err
	}
	o := &offer{feature: f, tier: t, kind: k, model: f.Model, provider: p, tokenizer: tokenizer,
		baseInput: int64(tokenizer.PerReply()), limits: tierLimits(t, k)}
	if f.System != "" {
		o.baseInput += int64(tokenizer.PerMessage() + tokenizer.Count(f.System))
	}
	o.limits = append(o.limits, quotaOf(f, k)...)
	o.policy = policyHeader(o.limits)
	return o, nil
}

// tierLimits are a tier's limits of one identity. Tokens and money come back
// when they were not used; requests never do, or failing calls would be free.
func tierLimits(t *policy.Tier, k kind) []limit {
	var limits []limit
	add := func(l *policy.Limit, r bucket.Return, mark func(*limit)) {
		if l == nil {
			return
		}
		made := newLimit(l, r)
		if mark != nil {
			mark(&made)
		}
		limits = append(limits, made)
	}
	var own func(*limit)
	switch k {
	case networkKind:
		own = func(l *limit) { l.client = true }
		if n := t.Network; n != nil {
			whole := func(l *limit) { l.network = true }
			add(n.Requests, bucket.Never, whole)
			add(n.Tokens, bucket.OnSettle, whole)
		}
	case passKind:
		add(t.Passes.CallsLimit(), bucket.OnExpiry, func(l *limit) { l.pass = true })
	}
	add(t.Requests, bucket.Never, own)
	add(t.Tokens, bucket.OnSettle, own)
	add(t.Spend, bucket.OnSettle, own)
	return limits
}

// quotaOf is a feature's quota, if it has one.
func quotaOf(f *policy.Feature, k kind) []limit {
	if f.Quota == nil {
		return nil
	}
	l := newLimit(f.Quota, bucket.OnExpiry)
	l.quota, l.client = true, k == networkKind
	return []limit{l}
}

func newLimit(l *policy.Limit, r bucket.Return) limit {
	return limit{Limit: bucket.Limit{Name: l.Name, Capacity: l.Capacity, Period: l.Period, Return: r}, unit: l.Unit}
}

// count is what a message costs of the input, framing included.
func (o *offer) count(m provider.Message) int64 {
	return int64(o.tokenizer.PerMessage() + o.tokenizer.Count(m.Content))
}

// amount is what a use of tokens, money and results comes to in the limit's unit.
type amount struct {
	tokens  int64
	money   price.Pico
	results int64
}

func (l limit) of(a amount) int64 {
	switch {
	case l.quota, l.pass:
		return a.results
	case l.unit == policy.Tokens:
		return a.tokens
	case l.unit == policy.USDMicros:
		return a.money.MicroDollars()
	}
	return 1
}

// charges are the worst case of a request, by limit. A cost is at least 1: a
// free model still counts its calls against a spend limit by the least amount.
// soft is the share beyond which a client is challenged.
func (o *offer) charges(worst amount, soft float64) []bucket.Charge {
	charges := make([]bucket.Charge, len(o.limits))
	for i, l := range o.limits {
		charges[i] = bucket.Charge{Limit: l.Limit, Cost: max(1, l.of(worst)), OfClient: l.client}
		if l.client && !l.quota {
			charges[i].Soft = soft
		}
	}
	return charges
}

// used is what was used, by limit.
func (o *offer) used(a amount) []int64 {
	used := make([]int64, len(o.limits))
	for i, l := range o.limits {
		used[i] = l.of(a)
	}
	return used
}

// policyHeader lists limits as RateLimit-Policy does.
func policyHeader(limits []limit) string {
	var b strings.Builder
	for i, l := range limits {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `"%s";q=%d;w=%d`, l.Name, l.Capacity, int64(l.Period.Seconds()))
		if l.unit == policy.Tokens {
			b.WriteString(`;qu="tokens"`)
		}
	}
	return b.String()
}
