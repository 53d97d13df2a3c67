package admission

import (
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Offer is a feature as it is open to a kind of caller of a tier: all that can be known
// before a request comes.
type Offer struct {
	Feature *policy.Feature
	Limits  []limits.Limit // that its calls are held against
	// Candidates are the feature's model and, if it has one, its fallback.
	Candidates candidates

	tier *policy.Tier
}

func newOffer(f *policy.Feature, t *policy.Tier, k limits.Kind) (*Offer, error) {
	o := &Offer{Feature: f, tier: t, Limits: append(limits.OfTier(t, k), limits.OfFeature(f, k)...)}
	for _, m := range f.Models() {
		c, err := newCandidate(m, f)
		if err != nil {
			return nil, err
		}
		o.Candidates = append(o.Candidates, c)
	}
	return o, nil
}

// MaxOutput is the largest output cap that a call can have, in tokens.
func (o *Offer) MaxOutput() int64 { return min(o.Feature.MaxOutputTokens, o.tier.MaxOutputTokens) }

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
func (c *Call) affordable(d bucket.Decision) int64 {
	for _, denial := range d.Denials {
		if denial.Limit.Name == bucket.InFlight {
			return 0
		}
		if l := named(c.Offer.Limits, denial.Limit); l.CountsResults() || l.Unit == policy.Requests {
			return 0
		}
	}
	most := c.MaxOutput
	for i, s := range d.Limits {
		switch l := c.Offer.Limits[i]; {
		case l.CountsResults():
		case l.Unit == policy.Tokens:
			most = min(most, s.Remaining-c.Input)
		case l.Unit == policy.USDMicros && s.Remaining < l.Least():
			return 0 // a free call costs the least amount, too
		case l.Unit == policy.USDMicros:
			for _, candidate := range c.Candidates {
				most = min(most, candidate.Model.Prices.AffordableOutput(c.Input, price.Pico(s.Remaining)))
			}
		}
	}
	return max(0, most)
}
