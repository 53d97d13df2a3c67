package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What OpenAI's own helpers made of an answer or of a refusal they may send back; who is
// set up wrong is told so by them; and dev says why a key is refused.
func TestOpenAITurns(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent []string // the conversations that reached the provider
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Messages []map[string]any
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
			return
		}
		var texts []string
		for _, m := range asked.Messages {
			check.That(t, len(m) == 2, "sent %v", m)
			texts = append(texts, fmt.Sprintf("%s: %s", m["role"], m["content"]))
		}
		mu.Lock()
		sent = append(sent, strings.Join(texts, " | "))
		mu.Unlock()
		delta := `{"content":"{\"a\":1}"}`
		if strings.HasSuffix(texts[len(texts)-1], "refuse") {
			delta = `{"refusal":"I will not."}`
		}
		event(w, `{"choices":[{"index":0,"delta":`+delta+`,"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27}}`)
		done(w)
	}))
	t.Cleanup(model.Close)
	d := startDev(t, writeConfig(t, strings.Join([]string{
		`providers: {main: {kind: openai, base_url: "` + model.URL + `/v1"}}`,
		`models: {small: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}}}`,
		`features: {ask: {model: small, max_output_tokens: 100, allow: [response_format]}}`,
		`tiers: {anonymous: {max_input_tokens: 1000, max_messages: 16, max_output_tokens: 100, limits: {tokens: {capacity: 100000, per: 1h}}},`,
		`        user: {max_input_tokens: 1000, max_output_tokens: 100, limits: {tokens: {capacity: 100000, per: 1h}}}}`,
		`fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}`,
	}, "\n")))
	got := run(t, []string{"TOKENFUSE_URL=" + d.url}, "node", "e2e/testdata/turns.mjs")
	where := " Chat completions are: POST " + d.url + "/v1/chat/completions. Responses are: POST " + d.url + "/v1/responses. The base URL of a client is " + d.url + "/v1."
	const answers, answer = `["I will not.","{\"a\":1}","{\"a\":1}"]`, `"{\"a\":1}"`
	want := strings.Join([]string{
		`create: ` + answers, `stream: ` + answers, `parse: ` + answers, `parsed stream: ` + answers,
		`unset: ` + answer, `17 messages: [` + answer + `,"6"]`,
		`/v1/: ["ask",` + answer + `]`, `//v1: ["ask",` + answer + `]`, `/v1//: ["ask",` + answer + `]`,
		`no such model: ["NotFoundError","model_not_found","There is no model gpt-4.1. See /v1/models."]`,
		`no /v1: ["NotFoundError","not_found","There is nothing at this address.` + where + `"]`,
		`embeddings: ["BadRequestError","invalid_value","ask answers with text: ask it at ` + d.url + `/v1/chat/completions."]`,
		`responses: ["NotFoundError","not_found","Nothing is stored here, so nothing can be asked of a response.` + where + `"]`,
		`completions: ["NotFoundError","not_found","The completions API is not served here.` + where + `"]`,
		`tools: ["BadRequestError","unsupported_parameter","This endpoint has no tools: tools is not supported."]`,
		`tool_choice: ["BadRequestError","unsupported_parameter","This endpoint has no tools: tool_choice is not supported."]`,
		`key: ["AuthenticationError","invalid_token","The key of a model provider does not belong here: whoever sees it can use it. Send the token of a user who has signed in, or the key anonymous."]`,
		`token: ["AuthenticationError","invalid_token","The Authorization header has no valid token."]`,
	}, "\n") + "\n"
	check.That(t, got.code == 0 && got.stdout == want, "exit code %d, %s\n%s\nwant\n%s", got.code, got.stderr, got.stdout, want)
	mu.Lock()
	defer mu.Unlock()
	const third = `user: refuse | assistant: I will not. | user: answer | assistant: {"a":1} | user: answer`
	if n := len(slices.DeleteFunc(slices.Clone(sent), func(s string) bool { return s != third })); n != 4 {
		t.Errorf("%d of 4 conversations arrived whole:\n%s", n, strings.Join(sent, "\n"))
	}
	if cut := strings.Repeat("user: answer | ", 15) + "user: answer"; !slices.Contains(sent, cut) {
		t.Errorf("the newest 16 messages did not arrive:\n%s", strings.Join(sent, "\n"))
	}
	said := d.output()
	check.That(t, strings.Contains(said, "401, key of a model provider: ") && strings.Contains(said, "401, malformed: ") && !strings.Contains(said, "4711"),
		"dev does not say why a token is refused, or says too much:\n%s", said)
}
