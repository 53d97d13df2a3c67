package e2e

import (
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// OpenAI's own client gets vectors in either encoding, pays for its texts, and is told what
// is wrong.
func TestOpenAIEmbeddings(t *testing.T) {
	t.Parallel()
	eachWay(t, writeConfig(t, strings.Join([]string{
		`providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}, bills_errors: false}}`,
		`models: {vectors: {kind: embedding, provider: main, id: text-embedding-3-small, tokenizer: cl100k_base, context: 8192, price_per_mtok: {input: "0.02"}}}`,
		`features: {search: {model: vectors, max_inputs: 3}}`,
		`tiers: {anonymous: {max_input_tokens: 3000, max_output_tokens: 1, limits: {tokens: {capacity: 100000, per: 366d}}}}`,
		`fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}`,
	}, "\n")), func(t *testing.T, d *dev) {
		got := run(t, []string{"TOKENFUSE_URL=" + d.url}, "node", "e2e/testdata/embeddings.mjs")
		other := `: ["BadRequestError","invalid_value","model","search makes embeddings: ask it at ` + d.url + `/v1/embeddings."]`
		want := strings.Join([]string{
			`vectors: ["list","search",3,1536,true,true]`,
			`usage: [{"prompt_tokens":12,"total_tokens":12},"99988",null]`,
			`as numbers: true`, `dimensions: [1,8]`, `model: [3,2000,false]`,
			`tokens: ["BadRequestError","invalid_value","input","input must be text: lists of tokens are not taken."]`,
			`too many: ["BadRequestError","input_too_long","input","There are 4 texts; at most 3 are allowed."]`,
			`too long: ["BadRequestError","input_too_long","input","The texts have 2001 characters together; at most 2000 are allowed. Nothing is cut off them."]`,
			`chat` + other, `response` + other,
			`fails: ["InternalServerError","provider_error",null,"The model failed to answer. Nothing was taken from your quota. Try again later."]`,
			`is cut: ["InternalServerError","provider_error",null,"The model failed to answer. Nothing was taken from your quota. Try again later."]`,
		}, "\n") + "\n"
		check.That(t, got.code == 0 && got.stdout == want, "exit code %d, %s\n%s\nwant\n%s", got.code, got.stderr, got.stdout, want)
	})
}
