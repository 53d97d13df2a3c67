package policy

import (
	"cmp"

	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// Kinds of models.
const (
	chats  = "chat"
	embeds = "embedding"
)

func (p *Policy) readModel(name string, v value) *Model {
	o := v.object()
	defer o.end()
	kindOf := o.get("kind")
	what := cmp.Or(kindOf.choice(chats, embeds), chats)
	m := &Model{
		Name:      name,
		Provider:  refer(o.need("provider"), "provider", p.Providers),
		ID:        o.need("id").text(),
		Embeds:    what == embeds,
		Tokenizer: cmp.Or(o.get("tokenizer").choice(tokens.Names()...), defaultTokenizer),
		Context:   o.need("context").integer(maxTokens),
		Prices:    readPrices(o.need("price_per_mtok"), what),
		Images:    readImageTokens(o.get("image_tokens")),
		Extra:     o.get("extra").extra(),
	}
	field := o.get("max_tokens_field")
	m.MaxTokensField = field.choice("max_tokens", "max_completion_tokens")
	m.Stream = o.get("stream").booleanOr(m.Provider == nil || m.Provider.Stream)
	for _, key := range [...]string{"max_tokens_field", "stream", "image_tokens"} {
		o.leaveOutFor(embeds, what, key, "")
	}
	o.shape.implies(shape{"not": ofKind(embeds)}, shape{"properties": shape{"price_per_mtok": requires("output")}})
	o.shape.implies(ofKind(embeds), shape{"properties": shape{"price_per_mtok": shape{"properties": shape{
		"cached_input": false, "cache_write": false, "output": false, "long_context": false,
	}}}})
	if m.Embeds {
		m.Stream = false
	}
	if m.Provider == nil {
		return m
	}
	switch openai := m.Provider.Kind == kind.OpenAI; {
	case m.Embeds && !openai && m.Provider.Kind != "":
		kindOf.report("must be %s: only providers of kind %s are asked for embeddings", chats, kind.OpenAI)
	case m.Embeds:
	case openai && m.Provider.host() == hostOpenAI:
		m.MaxTokensField = cmp.Or(m.MaxTokensField, openAIMaxTokensField)
	case openai && m.Provider.BaseURL != "" && !field.given() && o.ok:
		o.r.report(join(v.path, "max_tokens_field"), "is required where the provider is not %s: max_tokens or max_completion_tokens, whichever its server obeys. One that does not know the field ignores it, and with it the cap of the output", hostOpenAI)
	case !openai && field.given() && m.Provider.Kind != "":
		field.report("must be left out: only kind openai has a choice")
	}
	return m
}

// readPrices reads the prices of a model of the kind. Where there is no price for input
// that was read from or written to a cache, it is the price of other input: no price is
// guessed lower. A model that embeds has neither output nor a cache.
func readPrices(v value, kind string) price.Table {
	o := v.object()
	defer o.end()
	var t price.Table
	if kind == embeds {
		t.Input = o.need("input").rate()
		t.CachedInput, t.CacheWrite = t.Input, t.Input
		for _, key := range [...]string{"cached_input", "cache_write", "output", "long_context"} {
			o.leaveOut(key, "must be left out for kind %s", embeds)
		}
		return t
	}
	t.Rates = readRates(o)
	if !o.get("cache_write").given() {
		t.CacheWrite = t.Input
	}
	if long := o.get("long_context"); long.given() {
		lo := long.object()
		defer lo.end()
		t.LongAbove = lo.need("above").integer(maxTokens)
		t.Long = readRates(lo)
		if !lo.get("cache_write").given() {
			t.Long.CacheWrite = max(t.Long.Input, t.CacheWrite)
		}
	}
	o.shape.set("required", []string{"input"}) // whether output is, the kind of the model says
	return t
}

func readRates(o *object) price.Rates {
	r := price.Rates{
		Input:      o.need("input").rate(),
		CacheWrite: o.get("cache_write").rate(),
		Output:     o.need("output").rate(),
	}
	r.CachedInput = r.Input
	if cached := o.get("cached_input"); cached.given() {
		r.CachedInput = cached.rate()
	}
	return r
}

// readImageTokens reads what an image costs: two figures, or the name of a rule.
func readImageTokens(v value) *count.Images {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	low, high, rule := o.get("low"), o.get("high"), o.get("rule")
	i := &count.Images{Low: low.integer(maxTokens), High: high.integer(maxTokens), Rule: rule.choice(count.ImageRules()...)}
	switch {
	case !o.ok:
	case rule.given() == (low.given() || high.given()), low.given() != high.given():
		o.report("must have low and high, what an image costs at most at each detail, or the rule by which the provider reckons it")
	case i.Low > i.High && i.High > 0:
		low.report("must be at most high")
	}
	o.shape.set("oneOf", []any{
		requires("low", "high").set("properties", shape{"rule": false}),
		requires("rule").set("properties", shape{"low": false, "high": false}),
	})
	return i
}
