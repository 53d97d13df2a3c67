package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Each kind of provider is asked in its own words, with tools, an image and the wish for
// effort, and is understood when it calls; the caller's words are OpenAI's throughout. What
// a kind cannot be asked is refused by name before anybody is asked.
func TestToolsOfEveryKind(t *testing.T) {
	t.Parallel()
	const picture = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
	type kind struct {
		calls, says string   // what it answers first, and with the result
		first, then []string // what it is told, in turn
		effort      string   // that cannot be asked for; "": each can
	}
	const choice = `{"choices":[{"message":{"role":"assistant",%s},"finish_reason":%q}],"usage":{"prompt_tokens":90,"completion_tokens":40}}`
	const claude = `{"type":"message","role":"assistant","content":[%s],"stop_reason":%q,"usage":{"input_tokens":90,"output_tokens":40}}`
	const converse = `{"output":{"message":{"role":"assistant","content":[%s]}},"stopReason":%q,"usage":{"inputTokens":90,"outputTokens":40}}`
	kinds := map[string]kind{
		"/v1/chat/completions": {
			calls: fmt.Sprintf(choice, `"content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}}]`, "tool_calls"),
			says:  fmt.Sprintf(choice, `"content":"It is warm."`, "stop"),
			first: []string{`"parameters":{"type":"object"`, `"url":"data:image/gif;base64,` + picture, `"tool_choice":"required"`, `"reasoning_effort":"low"`},
			then:  []string{`"tool_call_id":"call_1"`, `"arguments":"{\"city\":\"Paris\"}"`},
		},
		"/v1/messages": {
			calls:  fmt.Sprintf(claude, `{"type":"tool_use","id":"call_1","name":"weather","input":{"city":"Paris"}}`, "tool_use"),
			says:   fmt.Sprintf(claude, `{"type":"text","text":"It is warm."}`, "end_turn"),
			first:  []string{`"input_schema":{"type":"object"`, `"media_type":"image/gif","data":"` + picture, `"tool_choice":{"type":"any"}`, `"output_config":{"effort":"low"}`},
			then:   []string{`{"type":"tool_use","id":"call_1","name":"weather","input":{"city":"Paris"}}`, `{"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"warm"}]}`},
			effort: "minimal",
		},
		"/model/m/converse-stream": {
			calls:  fmt.Sprintf(converse, `{"toolUse":{"toolUseId":"call_1","name":"weather","input":{"city":"Paris"}}}`, "tool_use"),
			says:   fmt.Sprintf(converse, `{"text":"It is warm."}`, "end_turn"),
			first:  []string{`"inputSchema":{"json":{"type":"object"`, `"bytes":"` + picture, `"toolChoice":{"any":{}}`},
			then:   []string{`"toolUse":{`, `"toolResult":{"content":[{"text":"warm"}],"toolUseId":"call_1"}`},
			effort: "low",
		},
	}
	var mu sync.Mutex
	bodies := map[string][]string{}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies[r.URL.Path] = append(bodies[r.URL.Path], string(body))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		answer := kinds[r.URL.Path].calls
		if strings.Contains(string(body), "warm") {
			answer = kinds[r.URL.Path].says
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(model.Close)
	config := writeConfig(t, strings.NewReplacer(
		"URL", model.URL,
		"MODEL", `id: m, tokenizer: upper_bound, context: 100000, image_tokens: {low: 85, high: 1445}, price_per_mtok: {input: "1", output: "10"}`,
		"FEATURE", `max_output_tokens: 100, allow: [tools, images]`).Replace(`
providers:
  openai:    {kind: openai, base_url: "URL/v1"}
  anthropic: {kind: anthropic, base_url: "URL", api_key: {env: E2E_ANTHROPIC_KEY}}
  bedrock:   {kind: bedrock, base_url: "URL"}
models:
  openai:    {provider: openai, max_tokens_field: max_completion_tokens, MODEL}
  anthropic: {provider: anthropic, MODEL}
  bedrock:   {provider: bedrock, MODEL}
features:
  openai:    {model: openai, FEATURE, reasoning_effort: [minimal, low]}
  anthropic: {model: anthropic, FEATURE, reasoning_effort: [low]}
  bedrock:   {model: bedrock, FEATURE}
tiers:
  user: {max_input_tokens: 20000, max_output_tokens: 100, max_in_flight: 100, limits: {tokens: {capacity: 1000000, per: 366d}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
`))
	cmd := exec.Command(binary, "dev", "--listen", "127.0.0.1:0", "--config", config)
	cmd.Env = append(os.Environ(), "E2E_ANTHROPIC_KEY=sk-test", "AWS_REGION=eu-west-1", "AWS_ACCESS_KEY_ID=AKID", "AWS_SECRET_ACCESS_KEY=secret", "AWS_PROFILE=")
	d := follow(t, cmd)
	token := d.token(t, "ann")
	const tool = `{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}`
	look := `{"role":"user","content":[{"type":"text","text":"Look."},{"type":"image_url","image_url":{"url":"data:image/gif;base64,` + picture + `"}}]}`
	ask := func(feature string, stream bool, messages, more string) answer {
		a, err := read(post(t.Context(), d.url+"/v1/chat/completions", token,
			fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[%s],"tools":[%s],"tool_choice":"required"%s}`, feature, stream, messages, tool, more)))
		check.OK(t, err)
		return a
	}
	for path, k := range kinds {
		feature := map[string]string{"/v1/chat/completions": "openai", "/v1/messages": "anthropic", "/model/m/converse-stream": "bedrock"}[path]
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%t", feature, stream), func(t *testing.T) {
				bodies[path] = nil
				if k.effort != "" {
					a := ask(feature, stream, look, fmt.Sprintf(`,"reasoning_effort":%q`, k.effort))
					check.That(t, a.status == http.StatusBadRequest && strings.Contains(a.body, `"param":"reasoning_effort"`), "%d %s", a.status, a.body)
				}
				effort := `,"reasoning_effort":"low"`
				if k.effort == "low" {
					effort = ""
				}
				a := ask(feature, stream, look, effort)
				got := a.told(t)
				check.Must(t, a.status == http.StatusOK && got.text == "" && got.finish == "tool_calls" && len(got.calls) == 1, "%d %s", a.status, a.body)
				call := got.calls[0]
				check.That(t, call.ID == "call_1" && call.Type == "function" && call.Function.Name == "weather" && call.Function.Arguments == `{"city":"Paris"}`, "called %+v", call)
				back, err := json.Marshal(map[string]any{"role": "assistant", "content": nil, "tool_calls": got.calls})
				check.OK(t, err)
				a = ask(feature, stream, look+","+string(back)+`,{"role":"tool","tool_call_id":"call_1","content":"warm"}`, effort)
				got = a.told(t)
				check.That(t, a.status == http.StatusOK && got.text == "It is warm." && got.finish == "stop" && len(got.calls) == 0, "%d %s", a.status, a.body)
				check.Must(t, len(bodies[path]) == 2, "%d requests: %s", len(bodies[path]), bodies[path])
				for i, wanted := range [][]string{k.first, append(k.first, k.then...)} {
					for _, part := range wanted {
						check.That(t, strings.Contains(bodies[path][i], part), "request %d has no %s: %s", i, part, bodies[path][i])
					}
				}
			})
		}
	}
	a := ask("bedrock", false, look, `,"parallel_tool_calls":false`)
	check.That(t, a.status == http.StatusBadRequest && strings.Contains(a.body, "parallel_tool_calls is not supported by bedrock."), "%d %s", a.status, a.body)
}
