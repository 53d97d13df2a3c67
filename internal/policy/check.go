package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// check reports mistakes that lie in the whole though each part is right. A part that
// could not be read is zero or nil in p. It was reported already and is passed over.
func (p *Policy) check(r *reader, exact exactTokenizer) {
	if p.Tiers[Anonymous] != nil && p.Fingerprint == nil && !r.has("fingerprint") {
		r.reportAt(r.line("tiers."+Anonymous), "fingerprint", "is required where there is a tier %s: its secret keys the hashes that stand for those callers", Anonymous)
	}
	if p.Backends != nil && p.Tiers[Anonymous] == nil && p.Fingerprint == nil && !r.has("fingerprint") {
		r.reportAt(r.line("backends"), "fingerprint", "is required where there are backends: its secret keys the hashes that stand for their visitors")
	}
	if p.Auth != nil && p.Tiers != nil && p.Tiers[User] == nil {
		r.report("tiers."+User, "is required where there is auth: it is the tier of users without a plan")
	}
	p.checkBackends(r)
	p.checkQuotas(r)
	p.checkCalls(r, exact)
}

// maxAnonymousQuotas bounds the quotas of anonymous callers. The item of a network has
// every quota for each client of the network, and a hold for each open call. With 40
// quotas of the longest names that comes to about 360 KB; an item may have 400 KB.
const maxAnonymousQuotas = 40

func (p *Policy) checkQuotas(r *reader) {
	if p.Tiers[Anonymous] == nil {
		return
	}
	quotas := 0
	for _, name := range p.FeatureNames(Anonymous) {
		if p.Features[name].Quota != nil {
			quotas++
		}
	}
	if quotas > maxAnonymousQuotas {
		r.report("tiers."+Anonymous, "may use at most %d features with a quota, and may use %d: all that is counted of a network's clients is in one item of the table", maxAnonymousQuotas, quotas)
	}
}

func (r *reader) has(path string) bool {
	_, ok := r.lines[path]
	return ok
}

// most remembers the largest of some figures, and the call that it belongs to. So a bound
// that is too small for many calls is reported once, with the figure that it must have.
type most[N int64 | price.Pico] struct {
	figure  N
	feature string
	tier    string
}

func (m *most[N]) take(figure N, f *Feature, t *Tier) {
	if figure > m.figure {
		*m = most[N]{figure, f.Name, t.Name}
	}
}

// checkCalls holds the dearest call of each tier to each feature against every
// bound that it meets. A bound below it would deny that call for ever.
func (p *Policy) checkCalls(r *reader, exact exactTokenizer) {
	var (
		overhead = overhead{exact, make(map[counted]int64)}
		contexts = make(map[*Model]*most[int64])
		pools    = make(map[*Pool]*most[price.Pico])
	)
	for _, tierName := range slices.Sorted(maps.Keys(p.Tiers)) {
		t := p.Tiers[tierName]
		path := "tiers." + tierName
		var size, fixed most[int64]
		var cost most[price.Pico]
		for _, featureName := range p.FeatureNames(tierName) {
			f := p.Features[featureName]
			if t.MaxInputTokens == 0 || t.MaxOutputTokens == 0 || f.Model == nil || f.MaxOutputTokens == 0 && !f.Model.Embeds {
				continue
			}
			tokens, money := p.WorstCase(f, t)
			size.take(tokens, f, t)
			cost.take(money, f, t)
			for _, pool := range p.PoolsFor(t) {
				largest(pools, pool).take(money, f, t)
			}
			for _, b := range p.Backends {
				if b.Pool != nil && b.Serves(tierName) {
					largest(pools, b.Pool).take(money, f, t)
				}
			}
			for _, m := range f.Models() {
				if m.Embeds {
					continue // its context is of one text, of which nothing comes from us
				}
				largest(contexts, m).take(tokens, f, t)
				images := p.imagesOf(f, t, m)
				fixed.take(price.Sum(images, overhead.of(m, f, t.MaxInputTokens-images)), f, t)
			}
		}

		if fixed.figure > 0 && fixed.figure >= t.MaxInputTokens {
			f := p.Features[fixed.feature]
			more := ""
			if f.Tools != nil {
				more = ", its tools"
			}
			if n := min(f.MaxImages, t.MaxImages); n > 0 {
				more += fmt.Sprintf(", its images (max_images: %d)", n)
			}
			r.report(path+".max_input_tokens", "must be above %d, which the system prompt of feature %s%s and the framing of a message take", fixed.figure, fixed.feature, more)
		}
		tokenLimit := func(l *Limit, path string) {
			if l != nil && l.Capacity > 0 && size.figure > l.Capacity {
				r.report(path+".capacity", "must be at least %d: a call to feature %s may take %d input tokens and %d output tokens", size.figure, size.feature, t.MaxInputTokens, size.figure-t.MaxInputTokens)
			}
		}
		tokenLimit(t.Tokens, path+".limits.tokens")
		if t.Network != nil {
			tokenLimit(t.Network.Tokens, path+".network.tokens")
		}
		if l := t.Spend; l != nil && l.Capacity > 0 && cost.figure.MicroDollars() > l.Capacity {
			r.report(path+".limits.spend.usd", "must be at least %s: a call to feature %s may cost that", picoDollars(cost.figure.MicroDollars()), cost.feature)
		}
	}

	for pool, dearest := range pools {
		if pool.Ceiling > 0 && dearest.figure > pool.Burst() {
			r.report("pools."+pool.Name+".usd", "must be at least %s: a quarter of it may be spent at once, and a call of tier %s to feature %s may cost %s", picoDollars(price.Pico(bucket.CeilingFor(int64(dearest.figure))).MicroDollars()), dearest.tier, dearest.feature, dearest.figure)
		}
	}
	for m, longest := range contexts {
		if m.Context > 0 && longest.figure > m.Context {
			r.report("models."+m.Name+".context", "must be at least %d: tier %s may send and get so many tokens in a call to feature %s; if the model has no more, lower their caps", longest.figure, longest.tier, longest.feature)
		}
	}
}

func largest[K comparable, N int64 | price.Pico](m map[K]*most[N], key K) *most[N] {
	if m[key] == nil {
		m[key] = new(most[N])
	}
	return m[key]
}

// exactTokenizer gives a tokenizer by its name; nil: exact counts are not needed.
type exactTokenizer func(name string) (*tokens.Tokenizer, error)

// imagesOf is the most that the images of a call cost of the input of m, in tokens.
func (p *Policy) imagesOf(f *Feature, t *Tier, m *Model) int64 {
	if m.Images == nil {
		return 0 // the feature takes none, or it was reported
	}
	return min(f.MaxImages, t.MaxImages) * m.Images.Dearest()
}

// overhead counts the part of each call that does not come from the caller: the system
// prompt, the owner's tools, and the framing of the prompt, of one message and of the
// reply. It remembers what it has counted, since tiers share features.
type overhead struct {
	exact   exactTokenizer
	counted map[counted]int64
}

// counted is what was counted, and how.
type counted struct {
	tokenizer, feature, model string
}

// of gives an upper bound, if that is below enough. Otherwise it gives the exact number,
// by the tokenizer of m, whose tables take longer to prepare than everything else here.
// Without exact tokenizers it gives a number below enough.
func (o overhead) of(m *Model, f *Feature, enough int64) int64 {
	if m.Provider == nil {
		return 0 // it was reported
	}
	n := o.count(tokens.UpperBound(), m, f)
	if n < enough {
		return n
	}
	if o.exact == nil {
		return enough - 1
	}
	if t, err := o.exact(m.Tokenizer); err == nil { // else it was reported
		return o.count(t, m, f)
	}
	return 0
}

func (o overhead) count(t *tokens.Tokenizer, m *Model, f *Feature) int64 {
	key := counted{t.Name(), f.Name, m.Name}
	n, known := o.counted[key]
	if !known {
		model := count.Model{Kind: m.Provider.Kind, ID: m.ID, Tokenizer: t}
		n = int64(t.Count(f.System)+2*t.PerMessage()) + model.Base() + model.Tools(f.Tools, openai.ToolChoice{})
		o.counted[key] = n
	}
	return n
}
