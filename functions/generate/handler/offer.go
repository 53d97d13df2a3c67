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

// offer is a feature as it is open to a tier: all that can be known before a
// request comes.
type offer struct {
	feature   *policy.Feature
	tier      *policy.Tier
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
	unit  policy.Unit
	quota bool // a number of results
}

func newOffer(f *policy.Feature, t *policy.Tier, p provider.Provider) (*offer, error) {
	tokenizer, err := tokens.New(f.Model.Tokenizer)
	if err != nil {
		return nil, err
	}
	o := &offer{feature: f, tier: t, model: f.Model, provider: p, tokenizer: tokenizer,
		baseInput: int64(tokenizer.PerReply()), limits: tierLimits(t)}
	if f.System != "" {
		o.baseInput += int64(tokenizer.PerMessage() + tokenizer.Count(f.System))
	}
	if f.Quota != nil {
		o.limits = append(o.limits, newLimit(f.Quota, bucket.OnExpiry))
		o.limits[len(o.limits)-1].quota = true
	}
	o.policy = policyHeader(o.limits)
	return o, nil
}

// tierLimits are a tier's limits of one identity. Tokens and money come back
// when they were not used; requests never do, or failing calls would be free.
func tierLimits(t *policy.Tier) []limit {
	var limits []limit
	if t.Requests != nil {
		limits = append(limits, newLimit(t.Requests, bucket.Never))
	}
	if t.Tokens != nil {
		limits = append(limits, newLimit(t.Tokens, bucket.OnSettle))
	}
	if t.Spend != nil {
		limits = append(limits, newLimit(t.Spend, bucket.OnSettle))
	}
	return limits
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
	case l.quota:
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
func (o *offer) charges(worst amount) []bucket.Charge {
	charges := make([]bucket.Charge, len(o.limits))
	for i, l := range o.limits {
		charges[i] = bucket.Charge{Limit: l.Limit, Cost: max(1, l.of(worst))}
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
