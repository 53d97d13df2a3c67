package admission

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/draw"
)

// What goes upstream of tools and of the wish for reasoning, and what of an anonymous
// caller's was cut to that.
func TestTaken(t *testing.T) {
	t.Parallel()
	p := testPolicy(t)
	own := p.Features["desk"].Tools
	mine := []openai.Tool{tool("a"), tool("b"), tool("c")}
	for name, tt := range map[string]struct {
		feature  string
		tools    openai.Tooling
		effort   string
		visitor  bool // who may send two tools
		want     openai.Tooling
		reasons  string
		cutTools int
		lowered  string // "-": it was not
	}{
		"a caller's tools":              {feature: "tools", tools: openai.Tooling{Tools: mine[:2], ToolChoice: openai.ToolChoice{Name: "b"}}, want: openai.Tooling{Tools: mine[:2], ToolChoice: openai.ToolChoice{Name: "b"}}, lowered: "-"},
		"none":                          {feature: "tools", tools: openai.Tooling{ToolChoice: openai.ToolChoice{Mode: "auto"}, ParallelToolCalls: new(true)}, lowered: "-"},
		"none where there are none":     {feature: "open", tools: openai.Tooling{ToolChoice: openai.ToolChoice{Mode: "none"}, ParallelToolCalls: new(false)}, lowered: "-"},
		"the feature's own":             {feature: "desk", want: openai.Tooling{Tools: own}, lowered: "-"},
		"a choice among them":           {feature: "desk", tools: openai.Tooling{ToolChoice: openai.ToolChoice{Name: "book"}, ParallelToolCalls: new(false)}, want: openai.Tooling{Tools: own, ToolChoice: openai.ToolChoice{Name: "book"}, ParallelToolCalls: new(false)}, lowered: "-"},
		"of a visitor, likewise":        {feature: "desk", visitor: true, tools: openai.Tooling{ToolChoice: openai.ToolChoice{Mode: "required"}}, want: openai.Tooling{Tools: own, ToolChoice: openai.ToolChoice{Mode: "required"}}, lowered: "-"},
		"a visitor's tools":             {feature: "tools", visitor: true, tools: openai.Tooling{Tools: mine[:2]}, want: openai.Tooling{Tools: mine[:2]}, lowered: "-"},
		"a visitor's tools, too many":   {feature: "tools", visitor: true, tools: openai.Tooling{Tools: mine, ToolChoice: openai.ToolChoice{Mode: "auto"}}, want: openai.Tooling{Tools: mine[:2], ToolChoice: openai.ToolChoice{Mode: "auto"}}, cutTools: 1, lowered: "-"},
		"an effort":                     {feature: "desk", effort: "medium", want: openai.Tooling{Tools: own}, reasons: "medium", lowered: "-"},
		"a visitor's effort":            {feature: "desk", visitor: true, effort: "low", want: openai.Tooling{Tools: own}, reasons: "low", lowered: "-"},
		"a visitor's effort, too large": {feature: "desk", visitor: true, effort: "xhigh", want: openai.Tooling{Tools: own}, reasons: "medium", lowered: "medium"},
		"a visitor's effort, too small": {feature: "desk", visitor: true, effort: "minimal", want: openai.Tooling{Tools: own}, reasons: "", lowered: ""},
	} {
		o := offerOf(t, p, tt.feature, policy.User, limits.User)
		if tt.visitor {
			o = visitorsOffer(t, p, tt.feature, func(t *policy.Tier) { t.MaxTools = 2 })
		}
		c, refusal := o.Cap(Prompt{Messages: []openai.Message{{Role: "user", Content: "Hi"}}, Tooling: tt.tools, Effort: tt.effort})
		check.Must(t, refusal == nil, "%s: refused: %+v", name, refusal)
		check.Diff(t, cmp.Diff(tt.want, c.Tooling), "%s: of tools", name)
		lowered := "-"
		if c.Cut.Effort != nil {
			lowered = *c.Cut.Effort
		}
		check.That(t, c.Effort == tt.reasons && c.Cut.Tools == tt.cutTools && lowered == tt.lowered, "%s: %q, cut %+v", name, c.Effort, c.Cut)
		bare, _ := o.Cap(Prompt{Messages: []openai.Message{{Role: "user", Content: "Hi"}}})
		if tt.want.Tools == nil {
			check.Equal(t, c.Input, bare.Input, "%s: tokens", name)
		} else {
			least := int64(0) // a byte a token is not too much for the tokenizer of the fallback
			for _, tool := range c.Tools {
				least += int64(len(tool.Name) + len(tool.Description) + len(tool.Parameters))
			}
			check.That(t, c.OfTools >= least && c.Input == o.Candidates.base()+c.OfTools+o.Candidates.count(c.Messages...), "%s: %d tokens, %d of tools", name, c.Input, c.OfTools)
		}
	}
}

// visitorsOffer is a feature as it is open to a tier that is changed from visitors'.
func visitorsOffer(t testing.TB, p *policy.Policy, feature string, change func(*policy.Tier)) *Offer {
	t.Helper()
	o := *offerOf(t, p, feature, policy.Anonymous, limits.Network)
	tier := *o.tier
	change(&tier)
	o.tier = &tier
	return &o
}

// A visitor's conversation loses its oldest part: a call of a tool goes with its results,
// and of the images the newest stay.
func TestCutOfMoreThanText(t *testing.T) {
	t.Parallel()
	p := testPolicy(t)
	f := *p.Features["eyes"]
	f.Tools, f.MaxImages, f.Fallback = []openai.Tool{tool("look_up")}, 8, nil
	p.Features["all"] = &f
	says := func(text string) openai.Message { return openai.Message{Role: "user", Content: text} }
	calls := openai.Message{Role: "assistant", ToolCalls: openai.ToolCalls{{ID: "1", Name: "look_up", Arguments: `{"a":1}`}, {ID: "2", Name: "look_up", Arguments: `{"a":2}`}}} // 28 characters
	result := func(id, text string) openai.Message {
		return openai.Message{Role: "tool", ToolCallID: id, Content: text}
	}
	low := openai.Image{URL: "data:image/png;base64,AAAA", Type: "image/png", Detail: "low", Width: 10, Height: 10} // 85 tokens
	shows := func(text string, n int) openai.Message {
		return openai.Message{Role: "user", Content: text, Images: slices.Repeat([]openai.Image{low}, n)}
	}
	abc := func(n int) string { return strings.Repeat("a ", n/2) }
	o := visitorsOffer(t, p, "all", func(*policy.Tier) {})
	base := o.Candidates.base() + o.Candidates.countTools(openai.Tooling{}, true)
	for name, tt := range map[string]struct {
		messages                              []openai.Message
		most                                  int64 // messages; 0: 16
		chars                                 int64 // 0: 2,000
		tokens                                int64 // beyond what any call costs; 0: 4,000
		images                                int64 // 0: 8
		want                                  []openai.Message
		cutMessages, cutCharacters, cutImages int
	}{
		"all of it fits": {messages: []openai.Message{says("Hi"), calls, result("1", "x"), result("2", "y"), shows("Now?", 2)},
			want: []openai.Message{says("Hi"), calls, result("1", "x"), result("2", "y"), shows("Now?", 2)}},
		"too many messages, within the calls": {messages: []openai.Message{says("Hi"), calls, result("1", "x"), result("2", "y"), says("Now?")}, most: 3,
			want: []openai.Message{says("Now?")}, cutMessages: 4, cutCharacters: 2 + 28 + 2},
		"too many messages, before the calls": {messages: []openai.Message{says("Hi"), calls, result("1", "x"), result("2", "y"), says("Now?")}, most: 4,
			want: []openai.Message{says("Now?")}, cutMessages: 4, cutCharacters: 2 + 28 + 2}, // else it began with an answer
		"the calls alone": {messages: []openai.Message{says("Hi"), calls, result("1", "x"), result("2", "y")}, most: 3,
			want: []openai.Message{calls, result("1", "x"), result("2", "y")}, cutMessages: 1, cutCharacters: 2},
		"a result that is too long": {messages: []openai.Message{says("Hi"), calls, result("1", "x"), result("2", abc(2_000))}, chars: 1_000,
			want: []openai.Message{calls, result("1", ""), result("2", abc(972))}, cutMessages: 1, cutCharacters: 2 + 1 + 1_028},
		"an older result that is too long": {messages: []openai.Message{calls, result("1", abc(900)), result("2", abc(500))}, chars: 1_028,
			want: []openai.Message{calls, result("1", abc(500)), result("2", abc(500))}, cutCharacters: 400},
		"calls that do not fit": {messages: []openai.Message{calls, result("1", ""), result("2", ""), says(abc(980))}, chars: 1_000,
			want: []openai.Message{says(abc(980))}, cutMessages: 3, cutCharacters: 28},
		"older images": {messages: []openai.Message{shows("One.", 2), says("So?"), shows("Two.", 3)}, images: 4,
			want: []openai.Message{shows("One.", 1), says("So?"), shows("Two.", 3)}, cutImages: 1},
		"images alone": {messages: []openai.Message{shows("", 2), shows("", 3)}, images: 3,
			want: []openai.Message{shows("", 0), shows("", 3)}, cutImages: 2},
		// A message is 4 tokens and 4 more for each image, of 85 each. "a " n times is n+1.
		"images that do not fit": {messages: []openai.Message{says("Hi"), shows(abc(20), 4)}, tokens: 4 + 11 + 2*89,
			want: []openai.Message{shows(abc(20), 2)}, cutMessages: 1, cutCharacters: 2, cutImages: 2},
		"images and a text that do not fit": {messages: []openai.Message{shows(abc(200), 4)}, tokens: 4 + 51,
			want: []openai.Message{shows(abc(100)+"a", 0)}, cutCharacters: 99, cutImages: 4},
		"a text that is too long, with an image": {messages: []openai.Message{shows(abc(2_000), 1)}, chars: 1_000,
			want: []openai.Message{shows(abc(1_000), 1)}, cutCharacters: 1_000},
	} {
		o := visitorsOffer(t, p, "all", func(t *policy.Tier) {
			t.MaxMessages, t.MaxInputChars, t.MaxImages, t.MaxInputTokens = 16, 2_000, 8, base+4_000
			for to, n := range map[*int64]int64{&t.MaxMessages: tt.most, &t.MaxInputChars: tt.chars, &t.MaxImages: tt.images} {
				if n > 0 {
					*to = n
				}
			}
			if tt.tokens > 0 {
				t.MaxInputTokens = base + tt.tokens
			}
		})
		c, refusal := o.Cap(Prompt{Messages: slices.Clone(tt.messages)})
		check.Must(t, refusal == nil, "%s: refused: %+v", name, refusal)
		check.Diff(t, cmp.Diff(tt.want, c.Messages, cmpopts.EquateEmpty()), "%s: sent", name)
		check.Equal(t, c.Cut, Cut{Messages: tt.cutMessages, Characters: tt.cutCharacters, Images: tt.cutImages}, "%s: cut", name)
		check.That(t, c.Input <= o.tier.MaxInputTokens, "%s: %d tokens of at most %d", name, c.Input, o.tier.MaxInputTokens)
	}
}

// A fallback that cannot do what is asked is not asked, and so takes part in no count.
func TestFallbackThatCannot(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, "providers:\n", "providers:\n  aws: {kind: bedrock}\n", "big:   {provider: main", "big:   {provider: aws",
		"fallback: big, max_output_tokens: 800, allow: [image_urls]", "max_output_tokens: 800, allow: [image_urls]")
	o := offerOf(t, p, "tools", policy.User, limits.User)
	call := func(parallel *bool) *Call {
		c, refusal := o.Cap(Prompt{Messages: []openai.Message{{Role: "user", Content: "Hi"}}, Tooling: openai.Tooling{Tools: []openai.Tool{tool("a")}, ParallelToolCalls: parallel}})
		check.Must(t, refusal == nil, "refused: %+v", refusal)
		return c
	}
	small := o.Candidates[0]
	alone := small.base + small.count(openai.Message{Role: "user", Content: "Hi"}) + small.counts.Tools([]openai.Tool{tool("a")}, openai.ToolChoice{})
	both, one := call(nil), call(new(false)) // Bedrock cannot be told so
	check.That(t, len(both.Candidates) == 2 && both.Input > alone, "asked anything: %d candidates, %d tokens", len(both.Candidates), both.Input)
	check.That(t, len(one.Candidates) == 1 && one.Input == alone && one.Worst.Money == small.Model.Prices.WorstCase(alone, one.MaxOutput),
		"asked for one call at a time: %d candidates, %d tokens, want %d", len(one.Candidates), one.Input, alone)
	check.Equal(t, len(o.Candidates), 2, "candidates of the offer")
}

// Whatever is asked: what fits exactly is neither refused nor cut, of anybody. One less than
// that of any cap, and a signed-in caller is refused, while a visitor's request is cut to fit,
// with each call of a tool beside its results.
func TestWhatFitsIsTaken(t *testing.T) {
	t.Parallel()
	p := testPolicy(t)
	f := *p.Features["links"]
	f.AllowTools, f.MaxImages, f.Efforts = true, 1_000, openai.Efforts
	p.Features["all"] = &f
	rapid.Check(t, func(t *rapid.T) {
		r := draw.Chat(t)
		kinds := amount(r.Messages)
		o := *must(newOffer(&f, p.Tiers[policy.User], limits.User))
		prompt := func() Prompt {
			messages := slices.Clone(r.Messages)
			return Prompt{Messages: messages, Tooling: r.Tooling, Effort: r.ReasoningEffort}
		}
		visitor := rapid.Bool().Draw(t, "a visitor")
		within := func(change func(*policy.Tier)) (*Call, *Refusal) {
			tier := *p.Tiers[policy.User]
			if visitor {
				tier.Name = policy.Anonymous
			}
			tier.MaxMessages, tier.MaxInputChars, tier.MaxInputTokens, tier.MaxTools, tier.MaxImages = int64(len(r.Messages)), max(1, kinds.characters()), 1<<40, max(1, int64(len(r.Tools))), int64(kinds.Images)
			change(&tier)
			o := o
			o.tier = &tier
			return o.Cap(prompt())
		}
		all, refusal := within(func(*policy.Tier) {})
		check.Must(t, refusal == nil, "refused: %+v", refusal)
		exactly := func(t *policy.Tier) { t.MaxInputTokens = all.Input }
		c, refusal := within(exactly)
		check.Must(t, refusal == nil && c.Cut == (Cut{}) && !c.TooMuch && cmp.Equal(c.Messages, r.Messages) && c.Input == all.Input && cmp.Equal(c.Tools, r.Tools) && c.Effort == r.ReasoningEffort,
			"what fits is not taken: %+v, %+v", refusal, c)

		of := rapid.SampledFrom([]string{"messages", "characters", "tokens", "tools", "images"}).Draw(t, "less of")
		less := func(t *policy.Tier) {
			exactly(t)
			for _, cap := range []struct {
				name string
				most *int64
			}{{"messages", &t.MaxMessages}, {"characters", &t.MaxInputChars}, {"tokens", &t.MaxInputTokens}, {"tools", &t.MaxTools}, {"images", &t.MaxImages}} {
				if cap.name == of && *cap.most > 1 { // none is no bound, or none at all
					*cap.most--
				}
			}
		}
		var tier policy.Tier
		c, refusal = within(func(t *policy.Tier) { less(t); tier = *t })
		if c, refusal := within(exactly); refusal == nil && tier.MaxMessages == int64(len(c.Messages)) && tier.MaxInputTokens == c.Input && tier.MaxInputChars >= amount(c.Messages).characters() &&
			tier.MaxImages == int64(c.Images()) && tier.MaxTools >= int64(len(c.Tools)) {
			return // there was nothing of it to lose
		}
		if !visitor {
			check.Must(t, refusal != nil, "one too many %s are taken", of)
			return
		}
		if refusal != nil { // what goes was chosen, or nothing remains
			check.Must(t, refusal.Kind == ToolNotOffered && of == "tools" || refusal.Kind == NothingFits || refusal.Kind == TooManyTokens && len(r.Messages) == 1, "refused: %+v", refusal)
			return
		}
		check.Must(t, c.Cut != (Cut{}) && c.Input <= tier.MaxInputTokens && amount(c.Messages).characters() <= tier.MaxInputChars && int64(len(c.Messages)) <= tier.MaxMessages &&
			int64(c.Images()) <= tier.MaxImages && int64(len(c.Tools)) <= tier.MaxTools, "beyond the caps: %+v of %+v", c, tier)
		check.Must(t, c.Messages[0].Role != "tool", "a result has lost its call")
		check.Must(t, c.Cut.Messages == len(r.Messages)-len(c.Messages) && c.Cut.Tools == len(r.Tools)-len(c.Tools) && c.Cut.Images == kinds.Images-c.Images() &&
			c.Cut.characters() == kinds.characters()-amount(c.Messages).characters(), "%+v is not what was cut", c.Cut)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
