package admission

import (
	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Offer is a feature as it is open to a kind of caller of a tier: all that can be known
// before a request comes.
type Offer struct {
	Feature *policy.Feature
	Limits  []limits.Limit // that its calls are held against
	// Candidates are the feature's model and, if it has one, its fallback. What is
	// counted and reserved is the most of them, whichever answers.
	Candidates []Candidate

	tier      *policy.Tier
	baseInput int64 // tokens of the system prompt and of the framing of any request
	ownTools  int64 // tokens of the feature's own tools
}

// Candidate is a model that may answer.
type Candidate struct {
	Model     *policy.Model
	Tokenizer *tokens.Tokenizer
}

func newOffer(f *policy.Feature, t *policy.Tier, k limits.Kind) (*Offer, error) {
	o := &Offer{Feature: f, tier: t, Limits: append(limits.OfTier(t, k), limits.OfFeature(f, k)...)}
	for _, m := range f.Models() {
		tokenizer, err := tokens.New(m.Tokenizer)
		if err != nil {
			return nil, err
		}
		o.Candidates = append(o.Candidates, Candidate{m, tokenizer})
	}
	o.setBaseInput()
	return o, nil
}

// MaxOutput is the largest output cap that a call can have, in tokens.
func (o *Offer) MaxOutput() int64 { return min(o.Feature.MaxOutputTokens, o.tier.MaxOutputTokens) }

// setBaseInput counts what every call costs, and what the feature's own tools do, once.
func (o *Offer) setBaseInput() {
	for _, c := range o.Candidates {
		base := int64(c.Tokenizer.PerReply())
		if s := o.Feature.System; s != "" {
			base += c.count(openai.Message{Role: "system", Content: s})
		}
		o.baseInput = max(o.baseInput, base)
		o.ownTools = max(o.ownTools, c.countTools(openai.Tooling{Tools: o.Feature.Tools}))
	}
}

// count is what a message costs of the input, framing and images included.
func (o *Offer) count(m openai.Message) (most int64) {
	for _, c := range o.Candidates {
		most = max(most, c.count(m))
	}
	return most
}

func (o *Offer) countAll(messages []openai.Message) (sum int64) {
	for _, m := range messages {
		sum += o.count(m)
	}
	return sum
}

// countTools is what offering tools costs, with the choice among them. Those of the
// feature itself are not counted again.
func (o *Offer) countTools(t openai.Tooling, own bool) (most int64) {
	for _, c := range o.Candidates {
		if own {
			most = max(most, o.ownTools+c.counts().Choice(t.ToolChoice))
		} else {
			most = max(most, c.countTools(t))
		}
	}
	return most
}

func (c Candidate) counts() count.Model {
	return count.Model{Tokenizer: c.Tokenizer, Kind: c.Model.Provider.Kind, ID: c.Model.ID}
}

func (c Candidate) count(m openai.Message) int64 {
	n := c.counts().Message(m)
	for _, i := range m.Images {
		if c.Model.Images != nil { // without, the call is not made, or not by this model
			n += c.Model.Images.Of(i)
		}
	}
	return n
}

func (c Candidate) countTools(t openai.Tooling) int64 {
	return c.counts().Tools(t.Tools, t.ToolChoice)
}

// head is the beginning of m's content with which m costs at most budget tokens.
func (o *Offer) head(m openai.Message, budget int64) string {
	for _, c := range o.Candidates {
		bare := m
		bare.Content = ""
		room := budget - c.count(bare)
		m.Content = c.Tokenizer.Cut(m.Content, int(room))
		// What stands between images counts by itself, and may count more than in one.
		for over := c.count(m) - budget; m.Content != "" && over > 0; over = c.count(m) - budget {
			room -= over
			m.Content = c.Tokenizer.Cut(m.Content, int(room))
		}
	}
	return m.Content
}

// Amount is a use of tokens, money and results.
type Amount struct {
	Tokens  int64
	Money   price.Pico
	Results int64
}

// in is what a comes to in the unit of a limit's bucket.
func (a Amount) in(l limits.Limit) int64 {
	switch {
	case l.CountsResults():
		return a.Results
	case l.Unit == policy.Tokens:
		return a.Tokens
	case l.Unit == policy.USDMicros:
		return int64(a.Money)
	}
	return 1
}

// worstCase is the most that a call can use.
func (o *Offer) worstCase(input, maxOutput int64) Amount {
	worst := Amount{Tokens: input + maxOutput, Results: 1}
	for _, c := range o.Candidates {
		worst.Money = max(worst.Money, c.Model.Prices.WorstCase(input, maxOutput))
	}
	return worst
}

// charges are the worst case of a call, by limit, or the least amount of each: a free
// call is held against a spend limit by that while it is open. soft is the share beyond
// which a client is challenged.
func (o *Offer) charges(worst Amount, soft float64) []bucket.Charge {
	charges := make([]bucket.Charge, len(o.Limits))
	for i, l := range o.Limits {
		charges[i] = bucket.Charge{Limit: l.Limit, Cost: max(l.Least(), worst.in(l)), OfClient: l.OfClient()}
		if l.Role == limits.OfClient {
			charges[i].Soft = soft
		}
	}
	return charges
}

// used is what was used, by limit.
func (o *Offer) used(a Amount) []int64 {
	used := make([]int64, len(o.Limits))
	for i, l := range o.Limits {
		used[i] = a.in(l)
	}
	return used
}

// affordable is the largest output cap, in tokens, with which a call that these states
// deny would be admitted now, or 0 if there is none.
func (o *Offer) affordable(input, maxOutput int64, d bucket.Decision) int64 {
	for _, denial := range d.Denials {
		if denial.Limit.Name == bucket.InFlight {
			return 0
		}
		if l := named(o.Limits, denial.Limit); l.CountsResults() || l.Unit == policy.Requests {
			return 0
		}
	}
	most := maxOutput
	for i, s := range d.Limits {
		switch l := o.Limits[i]; {
		case l.CountsResults():
		case l.Unit == policy.Tokens:
			most = min(most, s.Remaining-input)
		case l.Unit == policy.USDMicros && s.Remaining < l.Least():
			return 0 // a free call costs the least amount, too
		case l.Unit == policy.USDMicros:
			for _, c := range o.Candidates {
				most = min(most, c.Model.Prices.AffordableOutput(input, price.Pico(s.Remaining)))
			}
		}
	}
	return max(0, most)
}
