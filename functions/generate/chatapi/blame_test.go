package chatapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What a provider finds wrong with what the caller asks is told to the caller in our own
// words, takes nothing that was not billed, and counts against nobody. What the owner has
// set stays the owner's.
func TestRefusedForWhatIsAsked(t *testing.T) {
	t.Parallel()
	const theirWords = "SECRET-PROMPT"
	type refusal struct {
		status int
		body   string
	}
	for _, bills := range []bool{false, true} {
		var says atomic.Pointer[refusal]
		var calls atomic.Int64
		g := setup{model: func(up http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				if s := says.Load(); s != nil {
					w.WriteHeader(s.status)
					fmt.Fprint(w, s.body)
					return
				}
				up.ServeHTTP(w, r)
			})
		}}.newRig(t, func(yaml string) string {
			yaml = strings.Replace(yaml, "models:\n", "models:\n  spare: {provider: main, id: spare, max_tokens_field: max_completion_tokens, context: 1000000, price_per_mtok: {input: \"1\", output: \"1\"}}\n", 1)
			yaml = strings.Replace(yaml, "cv:    {model: small,", "cv:    {model: small, fallback: spare, allow: [response_format, tools, images], reasoning_effort: [low],", 1)
			yaml = strings.ReplaceAll(yaml, "context: 1000000,", "context: 1000000, image_tokens: {rule: gpt-4o},")
			return strings.Replace(yaml, "bills_errors: false", fmt.Sprintf("bills_errors: %t", bills), 1)
		})
		g.freeze(0)
		token := g.token("anna", "")
		code := func(status int, param, code string) *refusal {
			return &refusal{status, fmt.Sprintf(`{"error":{"message":%q,"type":"invalid_request_error","param":%s,"code":%s}}`, theirWords, param, code)}
		}
		for _, tt := range []struct {
			says        *refusal
			asks        string // beside the message
			code, param string // "": a 502
			sentence    string
		}{
			{code(400, `"messages"`, `"context_length_exceeded"`), "", "context_length_exceeded", "messages", "The conversation is too long for the model."},
			{code(413, `null`, `"request_too_large"`), "", "context_length_exceeded", "messages", "The conversation is too long for the model."},
			{code(400, `"prompt"`, `"content_filter"`), "", "content_filter", "messages", "The content filter of the model refused the request."},
			{code(422, `null`, `"content_policy_violation"`), "", "content_filter", "messages", "The content filter of the model refused the request."},
			{code(400, `null`, `"invalid_prompt"`), "", "invalid_prompt", "messages", "against its rules"},
			{code(400, `"messages[1].content"`, `"string_above_max_length"`), "", "string_above_max_length", "messages", "A text in the request is longer"},
			{code(400, `"temperature"`, `"unsupported_value"`), `,"temperature":0.2`, "unsupported_value", "temperature", "The model does not take this value of temperature."},
			{code(400, `null`, `"string_above_max_length"`), "", "string_above_max_length", "", "A text in the request is longer"},
			{code(400, `null`, `"unsupported_value"`), `,"stop":"x"`, "unsupported_value", "", "The model does not take this value of a parameter"},
			{code(400, `"seed"`, `"unsupported_parameter"`), `,"seed":7`, "unsupported_parameter", "seed", "The model does not take seed."},
			{code(400, `"top_p"`, `"invalid_value"`), `,"top_p":0.5`, "invalid_value", "top_p", "The model does not take this value of top_p."},
			{code(400, `"response_format.json_schema"`, `null`), `,"response_format":{"type":"json_object"}`, "invalid_value", "response_format", "this value of response_format"},
			{code(400, `"stop"`, `null`), `,"stop":["x"]`, "invalid_value", "stop", "this value of stop"},
			{code(400, `"presence_penalty"`, `"unsupported_parameter"`), `,"presence_penalty":1`, "unsupported_parameter", "presence_penalty", "does not take presence_penalty"},
			{code(400, `"frequency_penalty"`, `"unsupported_parameter"`), `,"frequency_penalty":1`, "unsupported_parameter", "frequency_penalty", "does not take frequency_penalty"},

			{code(400, `"tools[0].function.parameters"`, `"invalid_function_parameters"`), `,"tools":[{"type":"function","function":{"name":"f"}}]`, "invalid_value", "tools", "this value of tools"},
			{code(400, `"tool_choice"`, `"unsupported_value"`), `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"`, "unsupported_value", "tool_choice", "this value of tool_choice"},
			{code(400, `"parallel_tool_calls"`, `"unsupported_parameter"`), `,"tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":true`, "unsupported_parameter", "parallel_tool_calls", "does not take parallel_tool_calls"},
			{code(400, `"reasoning_effort"`, `"unsupported_value"`), `,"reasoning_effort":"low"`, "unsupported_value", "reasoning_effort", "this value of reasoning_effort"},
			{code(400, `null`, `"image_parse_error"`), `,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + pixel + `"}}]}]`, "invalid_value", "messages", "The model cannot take an image of the request."},

			// The caller has set none of these, or nobody knows what is wrong.
			{code(400, `"max_completion_tokens"`, `"unsupported_parameter"`), "", "", "", ""},
			{code(400, `"stream_options"`, `"unsupported_parameter"`), "", "", "", ""},
			{code(400, `"reasoning_effort"`, `"unsupported_value"`), "", "", "", ""},
			{code(400, `"temperature"`, `"unsupported_value"`), "", "", "", ""},
			{code(400, `"tools"`, `"invalid_value"`), "", "", "", ""},
			{code(400, `null`, `"image_parse_error"`), "", "", "", ""},
			{code(400, `"model"`, `"string_above_max_length"`), "", "", "", ""},
			{code(400, `"messages"`, `"invalid_value"`), "", "", "", ""},
			{code(400, `null`, `"invalid_value"`), `,"seed":7`, "", "", ""},
			{code(400, `null`, `"unsupported_value"`), "", "", "", ""},
			{code(400, `null`, `"unsupported_parameter"`), "", "", "", ""},
			{code(400, `null`, `"weird_thing"`), "", "", "", ""},
		} {
			for _, stream := range []bool{false, true} {
				name := fmt.Sprintf("bills %t, stream %t: %s%s", bills, stream, tt.says.body, tt.asks)
				before, made := g.remaining(token), calls.Load()
				says.Store(tt.says)
				asks := tt.asks
				if !strings.Contains(asks, `"messages"`) {
					asks += `,"messages":[{"role":"user","content":"hi"}]`
				}
				a := g.chat(token, fmt.Sprintf(`{"model":"cv","max_tokens":10,"stream":%t%s}`, stream, asks))
				says.Store(nil)
				e := g.wireError(a)
				status, kind := http.StatusBadRequest, "invalid_request_error"
				if tt.code == "" {
					status, kind, tt.sentence = http.StatusBadGateway, "server_error", "The model failed to answer."
				}
				if want := tt.code; a.status != status || e.Code != want && (want != "" || e.Code != "provider_error") || value(e.Param) != tt.param || e.Type != kind {
					t.Errorf("%s: %d %s", name, a.status, a.body)
				}
				check.That(t, e.Upstream != nil && *e.Upstream == tt.says.status && a.header.Get("X-Should-Retry") == "false" && strings.Contains(e.Message, tt.sentence) && strings.Contains(e.Message, "Nothing was taken from your quota."),
					"%s: %s %v", name, a.body, a.header)
				check.Equal(t, calls.Load()-made, 1, "%s: calls", name)
				after := g.remaining(token)
				billed := bills && tt.says.status != http.StatusRequestEntityTooLarge // which no model has seen
				check.That(t, after["cv"] == before["cv"] && after["tokens"] == before["tokens"] && (after["spend"] < before["spend"]) == billed,
					"%s: %v are left of %v", name, after, before)
			}
			g.freeze(1e9 * 5) // requests come back
		}
		// The provider is not taken for down.
		if a := g.chat(token, `{"model":"cv","messages":[{"role":"user","content":"hi"}],"max_tokens":10}`); a.status != http.StatusOK {
			t.Errorf("answered %d %s", a.status, a.body)
		}
		check.That(t, !strings.Contains(g.log.String(), theirWords), "the provider's words are in the log")
	}
}
