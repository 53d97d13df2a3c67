package chatapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/draw"
)

// manyModels has a feature for each of several models, and for pairs of them.
const manyModels = `
providers:
  main: {kind: openai, base_url: "http://127.0.0.1:1"}
  claude: {kind: anthropic, api_key: {env: TEST_SECRET}}
  aws: {kind: bedrock}
models:
  classic: {provider: main, id: gpt-4o-mini, max_tokens_field: max_tokens, tokenizer: o200k_base, context: 1000000, image_tokens: {rule: gpt-4o-mini}, price_per_mtok: {input: "0.15", cached_input: "0.075", output: "0.60"}}
  modern:  {provider: main, id: gpt-5, max_tokens_field: max_tokens, tokenizer: o200k_base, context: 1000000, image_tokens: {rule: gpt-5}, price_per_mtok: {input: "1.25", cached_input: "0.125", output: "10"}}
  unknown: {provider: main, id: some-model, max_tokens_field: max_tokens, tokenizer: upper_bound, context: 1000000, image_tokens: {rule: gpt-4o}, price_per_mtok: {input: "3", cached_input: "0.3", cache_write: "3.75", output: "15",
            long_context: {above: 9000, input: "6", cached_input: "0.6", cache_write: "7.5", output: "22.5"}}}
  sonnet:  {provider: claude, id: claude-sonnet-4-6, context: 1000000, image_tokens: {rule: claude}, price_per_mtok: {input: "3", cached_input: "0.3", cache_write: "3.75", output: "15"}}
  nova:    {provider: aws, id: amazon.nova-lite-v1, context: 1000000, image_tokens: {low: 1800, high: 1800}, price_per_mtok: {input: "0.06", output: "0.24"}}
  vectors: {kind: embedding, provider: main, id: text-embedding-3-small, tokenizer: cl100k_base, context: 8191, price_per_mtok: {input: "0.02"}}
  bounded: {kind: embedding, provider: main, id: some-vectors, tokenizer: upper_bound, context: 8191, price_per_mtok: {input: "0.01"}}
features:
  exact_texts: {model: vectors, max_inputs: 9}
  bounded_texts: {model: bounded, max_inputs: 9}
FEATURES
tiers:
  anonymous: {max_input_chars: 900, max_input_tokens: 400000, max_messages: 5, max_tools: 2, max_images: 1, max_output_tokens: 300, max_in_flight: 4, limits: {requests: {capacity: 10, per: 1h}}}
  user:      {max_input_tokens: 700000, max_messages: 64, max_output_tokens: 900, max_in_flight: 4, limits: {requests: {capacity: 10, per: 1h}}}
auth: {issuer: "http://127.0.0.1:1", audience: "test", jwks_url: "http://127.0.0.1:1/keys"}
fingerprint: {secret: {env: TEST_SECRET}}
`

// Whatever is asked, of whatever model, no plausible report bills more than was reserved, in
// tokens or in dollars: neither the built-in model's, which counts as OpenAI is known to, nor
// what the published rules of other kinds come to.
func TestWorstCaseOfEveryKind(t *testing.T) {
	t.Parallel()
	models := []string{"classic", "modern", "unknown", "sonnet", "nova"}
	var features strings.Builder
	for _, m := range models {
		for _, fallback := range append(models, "") {
			for _, tools := range []string{"", `, tools: [{name: owners, description: "The owner's own.", parameters: {type: object, properties: {a: {type: string}}}}]`} {
				if m == fallback || tools != "" && fallback != "" {
					continue
				}
				second := ""
				if fallback != "" {
					second = ", fallback: " + fallback
				}
				fmt.Fprintf(&features, "  %s%s%d: {model: %s%s, max_output_tokens: 700, system: \"You answer, in 漢字 if you like.\", allow: [tools, images], max_images: 9%s}\n", m, fallback, len(tools), m, second, tools)
			}
		}
	}
	p, err := policy.Parse([]byte(strings.Replace(manyModels, "FEATURES", features.String(), 1)))
	check.OK(t, err)
	c, err := admission.New(admission.Config{Policy: p}) // it is asked for no more than offers
	check.OK(t, err)
	names := slices.DeleteFunc(p.FeatureNames("user"), func(name string) bool { return p.Features[name].Model.Embeds })
	model := upstream.New(upstream.Options{})
	exact := must(tokens.New("o200k_base"))
	admitted := 0
	rapid.Check(t, func(t *rapid.T) {
		caller := admission.Caller{Kind: limits.User, Tier: p.Tiers["user"]}
		if rapid.Bool().Draw(t, "a visitor") {
			caller = admission.Caller{Kind: limits.Network, Tier: p.Tiers["anonymous"]}
		}
		offer, refusal := c.Offer(caller, rapid.SampledFrom(names).Draw(t, "feature"))
		check.Must(t, refusal == nil, "%+v", refusal)
		r := draw.Chat(t, "effort")
		call, refusal := offer.Cap(admission.Prompt{Messages: r.Messages, Tooling: r.Tooling, MaxOutput: rapid.Int64Range(0, 1_000).Draw(t, "max_tokens")})
		if refusal != nil { // a tool that goes is chosen, or the last turn has more than one image
			check.Must(t, refusal.Kind == admission.ToolNotOffered || refusal.Kind == admission.TooManyImages || refusal.Kind == admission.NothingFits, "%+v", refusal)
			return
		}
		admitted++
		for _, c := range call.Candidates {
			var input int64
			if c.Model.Provider.Kind == kind.OpenAI {
				input = billed(t, model, chatPath, openai.ChatRequest{Model: c.Model.ID, Messages: call.Messages, Tooling: call.Tooling, MaxCompletionTokens: 1})
			} else {
				input = plausible(exact, call)
			}
			check.Must(t, input <= call.Input, "%s: %d tokens of input are billed, %d were counted, %d of them of %d tools, with %d images", c.Model.Name, input, call.Input, call.OfTools, len(call.Tools), call.Images())
			u := price.Usage{Input: input, Output: rapid.Int64Range(0, call.MaxOutput).Draw(t, "output")}
			u.CachedInput = rapid.Int64Range(0, input).Draw(t, "cached")
			u.CacheWrite = rapid.Int64Range(0, input-u.CachedInput).Draw(t, "written")
			check.Must(t, u.Total() <= call.Worst.Tokens && c.Model.Prices.Cost(u) <= call.Worst.Money, "%s: %+v costs %s, reserved were %+v", c.Model.Name, u, c.Model.Prices.Cost(u), call.Worst)
		}
	})
	check.That(t, admitted >= 10, "%d calls were admitted", admitted)

	rapid.Check(t, func(t *rapid.T) { // batches of texts
		feature := rapid.SampledFrom([]string{"exact_texts", "bounded_texts"}).Draw(t, "feature")
		offer, refusal := c.Offer(admission.Caller{Kind: limits.User, Tier: p.Tiers["user"]}, feature)
		check.Must(t, refusal == nil, "%+v", refusal)
		texts := rapid.SliceOfN(draw.Text.Filter(func(s string) bool { return s != "" }), 1, 9).Draw(t, "texts")
		call, refusal := offer.Cap(admission.Prompt{Inputs: texts})
		check.Must(t, refusal == nil, "%+v", refusal)
		u := price.Usage{Input: billed(t, model, "/v1/embeddings", object{"model": offer.Feature.Model.ID, "input": texts})}
		check.Must(t, (feature == "bounded_texts" || u.Input == call.Input) && u.Input <= call.Worst.Tokens && offer.Feature.Model.Prices.Cost(u) <= call.Worst.Money, "%d tokens are billed, reserved were %+v", u.Input, call.Worst)
	})
}

// billed is the input that the built-in model bills a request.
func billed(t *rapid.T, model http.Handler, path string, request any) int64 {
	body := string(openai.Encode(request))
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	model.ServeHTTP(w, r)
	var answer struct {
		Usage struct {
			Prompt int64 `json:"prompt_tokens"`
		}
	}
	check.Must(t, w.Code == http.StatusOK && json.Unmarshal(w.Body.Bytes(), &answer) == nil && answer.Usage.Prompt > 0, "%d %s for %s", w.Code, w.Body, body)
	return answer.Usage.Prompt
}

// plausible is what a model of another kind may bill a call, by what is published: JSON of
// the tools and of their calls, behind an instruction of 346 tokens, and a token for 750
// pixels of an image, whose longer side is made to fit 1,568.
func plausible(t *tokens.Tokenizer, call *admission.Call) (n int64) {
	count := func(v any) { n += int64(t.Count(string(openai.Encode(v)))) }
	if len(call.Tools) > 0 {
		n += 346
		count(call.Tools)
	}
	for _, m := range call.Messages {
		n += 4 + int64(t.Count(m.Content))
		if m.ToolCalls != nil {
			count(m.ToolCalls)
		}
		for _, i := range m.Images {
			shrunk := min(1, 1_568/float64(max(i.Width, i.Height)))
			n += min(1_600, int64(float64(i.Width)*shrunk*float64(i.Height)*shrunk/750))
		}
	}
	return n
}
