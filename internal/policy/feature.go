package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// clientsChoke are names that client libraries take for models of OpenAI. With those they
// use another API than chat completions, or drop and rename parameters.
const clientsChoke = `^o[0-9]|^gpt-5|codex`

func chokesClients(name string) bool {
	return len(name) > 1 && name[0] == 'o' && digits(name[1:2]) || strings.HasPrefix(name, "gpt-5") || strings.Contains(name, "codex")
}

// reserved are names that stand for something else where a feature is named.
var reserved = []string{
	LimitTokens, LimitRequests, LimitSpend, LimitNetworkTokens, LimitNetworkRequests,
	LimitPasses, LimitInFlight, LimitPassCalls, LimitSiteverify, "all",
}

func (p *Policy) readFeature(name string, v value) *Feature {
	switch {
	case slices.Contains(reserved, name):
		v.report("a feature must not be named like a limit or all: %s", strings.Join(reserved, ", "))
	case chokesClients(name):
		v.report("a feature's name must not begin with o and a digit or with gpt-5, nor contain codex: clients change their behaviour on those")
	}
	o := v.object()
	defer o.end()
	f := &Feature{
		Name:            name,
		Model:           refer(o.need("model"), "model", p.Models),
		Fallback:        refer(o.get("fallback"), "model", p.Models),
		System:          o.get("system").prose(),
		MaxOutputTokens: o.get("max_output_tokens").integer(maxTokens),
		Tiers:           o.get("tiers").texts("tiers", func(item value, _ string) { refer(item, "tier", p.Tiers) }),
		MaxImages:       o.get("max_images").integer(maxImages),
		MaxInputs:       o.get("max_inputs").integer(maxInputs),
		Tools:           readTools(o.get("tools")),
		Efforts:         readEfforts(o.get("reasoning_effort")),
		Reasoning:       o.get("reasoning").boolean(),
		Quota:           readLimit(o.get("quota"), name, Requests),
	}
	f.readAllow(o.get("allow"))
	o.shape.implies(requires("max_images"), requires("allow").set("properties", shape{"allow": shape{"contains": shape{"enum": []string{"images", "image_urls"}}}}))
	switch {
	case f.Model == nil: // so it is not known what the feature may have
	case f.Model.Embeds:
		f.MaxInputs = cmp.Or(f.MaxInputs, maxInputs) // clients make batches as large as OpenAI takes; tokens bound what they cost
		o.checkEmbedding(f)
	default:
		o.checkChat(f)
	}
	return f
}

func (f *Feature) readAllow(v value) {
	words := []string{"system", "response_format", "tools", "images", "image_urls"}
	allowed := v.texts(strings.Join(words, ", "), func(item value, _ string) { item.choice(words...) })
	for word, allow := range map[string]*bool{
		"system": &f.AllowSystem, "response_format": &f.AllowResponseFormat, "tools": &f.AllowTools,
		"images": &f.AllowImages, "image_urls": &f.AllowImageURLs,
	} {
		*allow = slices.Contains(allowed, word)
	}
	f.AllowImages = f.AllowImages || f.AllowImageURLs
}

// readEfforts reads how much callers may let a model reason, and sorts it from the least on.
func readEfforts(v value) []string {
	words := v.texts("words for how much the model reasons", func(item value, _ string) { item.choice(openai.Efforts...) })
	slices.SortFunc(words, func(a, b string) int {
		return cmp.Compare(slices.Index(openai.Efforts, a), slices.Index(openai.Efforts, b))
	})
	return words
}

// checkEmbedding reports what a feature has that belongs to conversations. It has no
// fallback either: another model's vectors cannot be compared with those of the first.
func (o *object) checkEmbedding(f *Feature) {
	for _, key := range [...]string{"fallback", "system", "max_output_tokens", "allow", "max_images", "tools", "reasoning_effort", "reasoning"} {
		if v := o.entries[key]; v.given() {
			v.report("must be left out where the model is of kind %s, as %s is", embeds, f.Model.Name)
		}
	}
}

func (o *object) checkChat(f *Feature) {
	if !o.entries["max_output_tokens"].given() {
		o.r.report(join(o.path, "max_output_tokens"), "is required")
	}
	if v := o.entries["max_inputs"]; v.given() {
		v.report("must be left out: it is for models of kind %s", embeds)
	}
	if fallback := o.entries["fallback"]; f.Fallback != nil {
		switch {
		case f.Fallback == f.Model:
			fallback.report("must be another model than the feature's own")
		case f.Fallback.Embeds:
			fallback.report("must be a model of kind %s, as the feature's own is", chats)
		}
	}
	images := o.entries["max_images"]
	if images.given() && !f.AllowImages {
		images.report("must be left out where allow has no images")
	}
	if f.AllowImages {
		f.MaxImages = cmp.Or(f.MaxImages, defaultImages)
	}
	o.checkModels(f)
}

// checkModels reports what callers may send and a model of the feature cannot take.
func (o *object) checkModels(f *Feature) {
	for _, rule := range []struct {
		asked   bool
		key     string
		lacks   func(*Model) bool
		because string
	}{
		{f.AllowResponseFormat, "allow", func(m *Model) bool { return !m.Provider.Kind.HasResponseFormats() },
			"must not have response_format: model %s is of kind %s, which has none"},
		{f.AllowImages, "allow", func(m *Model) bool { return m.Images == nil },
			"must not have images: model %s has no image_tokens, and nobody would know what an image costs"},
		{f.AllowImageURLs, "allow", func(m *Model) bool { return !m.Provider.Kind.FetchesImages() },
			"must not have image_urls: model %s is of kind %s, which fetches no images"},
		{f.Efforts != nil, "reasoning_effort", func(m *Model) bool { return m == f.Model && !takesEfforts(m, f.Efforts) },
			"must have only what model %s of kind %s can be asked for: %s"},
	} {
		i := slices.IndexFunc(f.Models(), func(m *Model) bool { return rule.asked && m.Provider != nil && rule.lacks(m) })
		if i < 0 {
			continue
		}
		m := f.Models()[i]
		args := []any{m.Name, m.Provider.Kind, cmp.Or(strings.Join(m.Provider.Kind.Efforts(), ", "), "nothing")}
		o.entries[rule.key].report(rule.because, args[:strings.Count(rule.because, "%s")]...)
	}
}

// takesEfforts reports whether m can be asked for each of some efforts, as far as they are
// any: others were reported.
func takesEfforts(m *Model, efforts []string) bool {
	return !slices.ContainsFunc(efforts, func(e string) bool {
		return slices.Contains(openai.Efforts, e) && !slices.Contains(m.Provider.Kind.Efforts(), e)
	})
}
