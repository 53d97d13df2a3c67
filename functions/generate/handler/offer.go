package handler

import (
	"fmt"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// offer is a feature as it is open to a kind of caller of a tier: all that can be
// known before a request comes.
type offer struct {
	feature *policy.Feature
	tier    *policy.Tier
	kind    limits.Kind
	// candidates are the feature's model and, if it has one, its fallback. What is
	// counted and reserved is the most of them, whichever answers.
	candidates []candidate
	baseInput  int64 // tokens of the system prompt and of the framing of any request
	limits     []limits.Limit
	policy     string // the RateLimit-Policy header
}

// candidate is a model that may answer.
type candidate struct {
	model     *policy.Model
	provider  provider.Provider
	tokenizer *tokens.Tokenizer
}

func newOffer(f *policy.Feature, t *policy.Tier, k limits.Kind, providers map[string]provider.Provider) (*offer, error) {
	o := &offer{feature: f, tier: t, kind: k, limits: append(limits.OfTier(t, k), limits.OfFeature(f, k)...)}
	for _, m := range f.Models() {
		p := providers[m.Provider.Name]
		if p == nil {
			return nil, fmt.Errorf("no provider %s", m.Provider.Name)
		}
		tokenizer, err := tokens.New(m.Tokenizer)
		if err != nil {
			return nil, err
		}
		o.candidates = append(o.candidates, candidate{m, p, tokenizer})
	}
	o.setBaseInput()
	o.policy = policyHeader(o.limits)
	return o, nil
}

// maxOutput is the largest output cap that a request can have, in tokens.
func (o *offer) maxOutput() int64 { return min(o.feature.MaxOutputTokens, o.tier.MaxOutputTokens) }

func (o *offer) setBaseInput() {
	for _, c := range o.candidates {
		base := int64(c.tokenizer.PerReply())
		if s := o.feature.System; s != "" {
			base += c.count(s)
		}
		o.baseInput = max(o.baseInput, base)
	}
}

// count is what a message costs of the input, framing included.
func (o *offer) count(m openai.Message) (most int64) {
	for _, c := range o.candidates {
		most = max(most, c.count(m.Content))
	}
	return most
}

func (c candidate) count(content string) int64 {
	return int64(c.tokenizer.PerMessage() + c.tokenizer.Count(content))
}

// head is the beginning of content that costs at most budget tokens as a message.
func (o *offer) head(content string, budget int64) string {
	for _, c := range o.candidates {
		content = c.tokenizer.Cut(content, int(budget-int64(c.tokenizer.PerMessage())))
	}
	return content
}

// amount is a use of tokens, money and results.
type amount struct {
	tokens  int64
	money   price.Pico
	results int64
}

// in is what a comes to in the unit of a limit's bucket.
func (a amount) in(l limits.Limit) int64 {
	switch {
	case l.Quota, l.PassCalls:
		return a.results
	case l.Unit == policy.Tokens:
		return a.tokens
	case l.Unit == policy.USDMicros:
		return int64(a.money)
	}
	return 1
}

// charges are the worst case of a request, by limit, or the least amount of each: a
// free call is held against a spend limit by that while it is open.
// soft is the share beyond which a client is challenged.
func (o *offer) charges(worst amount, soft float64) []bucket.Charge {
	charges := make([]bucket.Charge, len(o.limits))
	for i, l := range o.limits {
		charges[i] = bucket.Charge{Limit: l.Limit, Cost: max(l.Least(), worst.in(l)), OfClient: l.OfClient}
		if l.OfClient && !l.Quota {
			charges[i].Soft = soft
		}
	}
	return charges
}

// used is what was used, by limit.
func (o *offer) used(a amount) []int64 {
	used := make([]int64, len(o.limits))
	for i, l := range o.limits {
		used[i] = a.in(l)
	}
	return used
}

// policyHeader lists limits as RateLimit-Policy does.
func policyHeader(list []limits.Limit) string {
	var b strings.Builder
	for i, l := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `"%s";q=%d;w=%d`, l.Name, l.Shown(l.Capacity), int64(l.Period.Seconds()))
		if l.Unit == policy.Tokens {
			b.WriteString(`;qu="tokens"`)
		}
	}
	return b.String()
}
