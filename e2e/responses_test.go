package e2e

import (
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// OpenAI's own client asks for responses, streams them, parses them, goes on with what it
// got, and tells what was refused and what failed.
func TestOpenAIResponses(t *testing.T) {
	t.Parallel()
	d := startDev(t, writeConfig(t, strings.Join([]string{
		`providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}, bills_errors: false}}`,
		`models: {small: {provider: main, id: gpt-4o, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}, image_tokens: {low: 85, high: 1445}}}`,
		`features: {ask: {model: small, max_output_tokens: 100, allow: [system, response_format, tools, images], max_images: 1, reasoning: true, reasoning_effort: [low]}}`,
		`tiers: {anonymous: {max_input_tokens: 4000, max_messages: 16, max_tools: 4, max_images: 1, max_output_tokens: 100, limits: {tokens: {capacity: 100000, per: 1h}}}}`,
		`fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}`,
	}, "\n")))
	got := run(t, []string{"TOKENFUSE_URL=" + d.url}, "node", "e2e/testdata/responses.mjs")
	const nothing = "Nothing was taken from your quota."
	want := strings.Join([]string{
		`create: ["completed",null,"This is",true,false,"ask","Be brief."]`,
		`stream: ["completed",null,"This is",true,false,true,"tokens",9,"response.completed"]`,
		`cut: ["incomplete","max_output_tokens","This is",true,false,true,"tokens",9,"response.incomplete"]`,
		`reasoning: ["completed",null,"This is",true,false,true,"tokens",15,"response.completed"]`,
		`parse: "number"`, `parsed stream: "number"`,
		`turns: "messages 7"`,
		`tools: [1,"figures: 17",true]`, `tools streamed: [2,"figures: 17, 18",true]`, `tools parsed: [2,"figures: 17, 18",true]`,
		`call: ["completed",null,"",true,false,true,"tokens",7,"response.completed"]`,
		`forced: ["completed",null,"",true,false,true,"tokens",7,"response.completed"]`,
		`image: "picture of 1 x 1"`, `effort: ["low",8,"reasoning_effort=low"]`,
		`reference: ["BadRequestError","unsupported_parameter","input[0]","input[0]: nothing is stored here, so items cannot be referred to. Set store to false in your client, so that it sends them whole."]`,
		`previous: ["BadRequestError","unsupported_parameter","previous_response_id","previous_response_id is not supported: nothing is stored here. Send the whole conversation as input."]`,
		`hosted: ["BadRequestError","unsupported_parameter","tools[0].type","tools[0].type: web_search costs by itself and is not supported: only function is."]`,
		`fails: ["InternalServerError","provider_error",null,"The model failed to answer. ` + nothing + ` Try again later."]`,
		`fails before it begins: ["InternalServerError","provider_error",null,"The model failed to answer. ` + nothing + ` Try again later."]`,
		// Half of an answer of 59 tokens, to an input of 11.
		`breaks off: ["APIError","provider_error",null,"The model failed to answer. Counted: 41 tokens. Try again later."]`,
		`retrieve: ["NotFoundError","not_found",null,"Nothing is stored here, so nothing can be asked of a response. Chat completions are: POST ` +
			d.url + `/v1/chat/completions. Responses are: POST ` + d.url + `/v1/responses. The base URL of a client is ` + d.url + `/v1."]`,
	}, "\n") + "\n"
	check.That(t, got.code == 0 && got.stdout == want, "exit code %d, %s\n%s\nwant\n%s", got.code, got.stderr, got.stdout, want)
}
