package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// inputOf is what a tokenizer makes of the input of a check.
func inputOf(t *testing.T, tokenizer string) int {
	t.Helper()
	tk, err := tokens.New(tokenizer)
	check.OK(t, err)
	return tk.PerReply() + tk.PerMessage() + tk.Count(liveText)
}

// openAIAnswer is an answer of some words, in one piece.
func openAIAnswer(words int, finish string, input, output int) string {
	return fmt.Sprintf(`{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"%s"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`,
		strings.Repeat(" one", words), finish, input, output, input+output)
}

// Each model's provider is a server that is right or wrong in its own way.
func TestCheckLive(t *testing.T) {
	asAdmin(t, adminKey, adminSecret) // Bedrock signs with it
	t.Setenv("AWS_REGION", "eu-west-1")
	t.Setenv("LIVE_KEY", "right")
	o200k, cl100k := inputOf(t, "o200k_base"), inputOf(t, "cl100k_base")
	answers := map[string]func(w http.ResponseWriter, body string){}
	says := func(status int, body string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if name == "builtin" {
			if r.Header.Get("Authorization") != "Bearer right" {
				says(401, `{"error":{"message":"no","code":"invalid_api_key"}}`)(w, "")
				return
			}
			upstream.New(upstream.Options{}).ServeHTTP(w, r)
			return
		}
		answers[name](w, "")
	}))
	t.Cleanup(provider.Close)

	config := "providers:\n"
	models := "models:\n"
	problems := map[string]string{}
	add := func(name, kind, more, model string, answer func(http.ResponseWriter, string), problem string) {
		config += fmt.Sprintf("  %s: {kind: %s, base_url: %q, timeout: 20s%s}\n", name, kind, provider.URL+"/"+name+"/v1", more)
		models += fmt.Sprintf("  %s: {provider: %s, id: the-model, context: 100000, price_per_mtok: {input: \"1\", output: \"10\"}%s}\n", name, name, model)
		answers[name], problems[name] = answer, problem
	}
	const exact = ", tokenizer: o200k_base, max_tokens_field: max_tokens"
	add("builtin", "openai", ", api_key: {env: LIVE_KEY}", exact, nil, "")
	add("whole", "openai", ", stream: false", exact, says(200, openAIAnswer(16, "length", o200k, 16)), "")
	add("bound", "openai", ", stream: false", ", max_tokens_field: max_tokens", says(200, openAIAnswer(16, "length", 3*o200k/2, 16)), "")
	add("claude", "anthropic", ", stream: false, api_key: {env: LIVE_KEY}", "", says(200, fmt.Sprintf(`{"type":"message","role":"assistant","content":[{"type":"text","text":"one"}],"stop_reason":"max_tokens","usage":{"input_tokens":%d,"output_tokens":16}}`, o200k)), "")
	add("nova", "bedrock", ", stream: false", "", says(200, fmt.Sprintf(`{"output":{"message":{"role":"assistant","content":[{"text":"one"}]}},"stopReason":"max_tokens","usage":{"inputTokens":%d,"outputTokens":16,"totalTokens":%d}}`, o200k, o200k+16)), "")
	add("key", "openai", "", exact, says(401, `{"error":{"message":"Incorrect API key: sk-secret","code":"invalid_api_key"}}`), `the key is refused.*status 401 \(invalid_api_key\)`)
	add("unknown", "openai", "", exact, says(404, `{"error":{"message":"no","code":"model_not_found"}}`), `there is no model the-model: status 404 \(model_not_found\); look at models.unknown.id`)
	add("field", "openai", "", exact, says(400, `{"error":{"message":"no","code":"unsupported_parameter","param":"max_tokens"}}`), `does not take max_tokens: status 400`)
	add("uncapped", "openai", ", stream: false", exact, says(200, openAIAnswer(60, "stop", o200k, 60)), `the output cap is not obeyed: at least 60 tokens though 16 were allowed; look at models.uncapped.max_tokens_field`)
	add("endless", "openai", "", exact, func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", strings.Repeat(" one two", 1000)); err != nil {
				return
			}
		}
	}, `no usage is reported.*the output cap is not obeyed`)
	add("tokenizer", "openai", ", stream: false", exact, says(200, openAIAnswer(16, "length", cl100k, 16)), fmt.Sprintf(`counted as %d tokens and is reported as %d: look at models.tokenizer.tokenizer \(cl100k_base would fit\)`, o200k, cl100k))
	add("prompted", "openai", ", stream: false", ", max_tokens_field: max_tokens", says(200, openAIAnswer(16, "length", 5000, 16)), `reported as 5000: look at .*a prompt of its own`)
	add("silent", "openai", ", stream: false", exact, says(200, strings.Replace(openAIAnswer(16, "length", 1, 1), `"usage"`, `"used"`, 1)), "no usage is reported")
	add("modest", "openai", ", stream: false", exact, says(200, openAIAnswer(16, "length", o200k, 3)), "16 tokens of output came and 3 are reported")
	add("broke", "openai", "", exact, says(429, `{"error":{"message":"no","code":"insufficient_quota"}}`), `no credit: status 429 \(insufficient_quota\)`)
	add("down", "openai", "", exact, says(500, `no`), `the call failed: .*500`)
	add("mute", "openai", "", exact, says(200, `{"data":[{"embedding":[1,2]}]}`), "the call failed")
	for name, m := range map[string][2]string{"vectors": {"builtin, tokenizer: cl100k_base", ""}, "miscounted": {"builtin, tokenizer: o200k_base", `look at models.miscounted.tokenizer \(cl100k_base would fit\)`}, "unsaid": {"mute", "no usage is reported"}, "lost": {"unknown", "there is no model"}} {
		models += fmt.Sprintf("  %s: {kind: embedding, id: text-embedding-3-small, context: 8192, price_per_mtok: {input: \"0.02\"}, provider: %s}\n", name, m[0])
		problems[name] = m[1]
	}
	config += "  away: {kind: openai, base_url: \"http://127.0.0.1:1/v1\", timeout: 20s}\n  keyless: {kind: openai, base_url: \"http://127.0.0.1:1/v1\", api_key: {env: LIVE_NO_SUCH}, timeout: 20s}\n"
	models += "  away: {provider: away, id: x, context: 100000, price_per_mtok: {input: \"1\", output: \"10\"}" + exact + "}\n  keyless: {provider: keyless, id: x, context: 100000, price_per_mtok: {input: \"1\", output: \"10\"}" + exact + "}\n"
	problems["away"], problems["keyless"] = "cannot be reached: .*is providers.away.base_url right", "LIVE_NO_SUCH is not set"
	file := writeFile(t, config+models+`features: {ask: {model: builtin, max_output_tokens: 10}}
tiers: {user: {max_input_tokens: 1000, max_output_tokens: 10, max_in_flight: 1, limits: {tokens: {capacity: 100000, per: 1h}}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
`)

	got := command(t, "check", "--config", file, "--live", "--json")
	var answer struct{ Live live }
	check.Must(t, json.Unmarshal([]byte(got.stdout), &answer) == nil && got.code == 1 && strings.Contains(got.stderr, "17 of 23 models have problems"), "%+v", got)
	check.Must(t, len(answer.Live.Models) == len(problems), "%d models of %d", len(answer.Live.Models), len(problems))
	for _, m := range answer.Live.Models {
		said := strings.Join(m.Problems, "; ")
		check.That(t, m.OK == (problems[m.Model] == "") && (said == "") == m.OK && regexp.MustCompile(problems[m.Model]).MatchString(said), "%s: %t %s", m.Model, m.OK, said)
	}
	check.That(t, !strings.Contains(got.stdout+got.stderr, "sk-secret"), "a key in %s", got.stdout)

	shown := command(t, "check", "--config", file, "--live", "--model", "builtin", "--model", "bound")
	for _, part := range []string{`calling 2 models once each, which costs \$0\.000\d+ at most`, fmt.Sprintf(`(?m)^builtin  the-model  %d +%d +16   16    \$0\.000\d+  ok$`, o200k, o200k), `(?m)^bound +the-model  <=\d+ `} {
		check.That(t, shown.code == 0 && regexp.MustCompile(part).MatchString(shown.stdout), "no %s in %+v", part, shown)
	}
	vectors := command(t, "check", "--config", file, "--live", "--model", "vectors")
	check.That(t, vectors.code == 0 && regexp.MustCompile(`(?m)^vectors  text-embedding-3-small  (\d+) +(\d+) +0    -     \$0\.00000\d+  ok$`).MatchString(vectors.stdout), "%+v", vectors)
	wrong := command(t, "check", "--config", file, "--live", "--model", "tokenizer")
	check.That(t, wrong.code == 1 && strings.Contains(wrong.stdout, "PROBLEM\ntokenizer: the input was counted") && strings.Contains(wrong.stderr, "1 of 1 models have problems"), "%+v", wrong)
	none := command(t, "check", "--config", file, "--live", "--model", "nothing")
	check.That(t, none.code == 1 && strings.Contains(none.stderr, "there is no model nothing"), "%+v", none)
}
