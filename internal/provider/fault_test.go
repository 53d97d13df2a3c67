package provider

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What servers find wrong with a request is known by their codes, by what hides behind
// them, and by fixed phrases. The bodies are those of the servers, with the prompt in them.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		fault  Fault
		param  string
	}{
		{"OpenAI", 400, `{"error":{"message":"This model's maximum context length is 8192 tokens. PROMPT","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, "context_length_exceeded", "messages"},
		{"OpenAI's value", 400, `{"error":{"message":"Unsupported value: 'temperature' PROMPT","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`, "unsupported_value", "temperature"},
		{"OpenAI's parameter", 400, `{"error":{"message":"PROMPT","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`, "unsupported_parameter", "max_tokens"},
		{"OpenAI's rules", 400, `{"error":{"message":"Invalid prompt: PROMPT","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`, "invalid_prompt", ""},
		{"OpenAI's long string", 400, `{"error":{"message":"PROMPT","param":"messages[0].content","code":"string_above_max_length"}}`, "string_above_max_length", "messages"},
		{"OpenAI's schema", 400, `{"error":{"message":"Invalid schema for response_format 'x'","type":"invalid_request_error","param":"response_format","code":null}}`, "invalid_value", "response_format"},
		{"OpenAI's image", 400, `{"error":{"message":"You uploaded an unsupported image. PROMPT","type":"invalid_request_error","param":null,"code":"invalid_image_format"}}`, "invalid_image", ""},
		{"OpenAI's parameters", 400, `{"error":{"message":"Invalid schema for function 'f': PROMPT","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}`, "invalid_value", "tools"},
		{"Anthropic's image", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Could not process image"}}`, "invalid_image", ""},
		{"Azure", 400, `{"error":{"message":"The response was filtered PROMPT","param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, "content_filter", "prompt"},
		{"Azure, older", 400, `{"error":{"message":"PROMPT","code":null,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, "content_filter", ""},
		{"Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`, "context_length_exceeded", ""},
		{"Anthropic with the output", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000\"}}", "context_length_exceeded", ""},
		{"Anthropic's size", 413, `{"type":"error","error":{"type":"request_too_large","message":"PROMPT"}}`, "context_length_exceeded", ""},
		{"Anthropic's filter", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`, "content_filter", ""},
		{"Bedrock", 400, `{"__type":"ValidationException","message":"Input is too long for requested model."}`, "context_length_exceeded", ""},
		{"Claude in Bedrock", 400, "{\"message\":\"`temperature` and `top_p` cannot both be specified for this model. Please use only one.\"}", "unsupported_value", ""},
		{"Claude's newer models", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"`temperature` is deprecated for this model.\"}}", "unsupported_parameter", ""},
		{"a refusal", 400, `{"error":{"code":"model_refusal","message":"PROMPT"}}`, "content_filter", ""},
		{"vLLM", 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. PROMPT","type":"BadRequestError","param":null,"code":400}`, "context_length_exceeded", ""},
		{"FastAPI", 422, `{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted","input":"maximum context length"}]}`, "unsupported_parameter", "seed"},
		{"Mistral", 422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"PROMPT"}]},"type":"invalid_request_error","code":null}`, "unsupported_parameter", "stream_options"},
		{"Mistral's length", 400, `{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","code":"3051"}`, "context_length_exceeded", ""},
		{"Gemini", 400, `[{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]`, "context_length_exceeded", ""},
		{"DeepSeek", 400, `{"error":{"message":"Content Exists Risk","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, "content_filter", ""},
		{"Zhipu", 400, `{"error":{"code":"1301","message":"PROMPT"}}`, "content_filter", ""},
		{"llama.cpp", 400, `{"error":{"code":400,"message":"PROMPT","type":"exceed_context_size_error","n_ctx":4096}}`, "context_length_exceeded", ""},
		{"LM Studio", 400, `{"error":"The model is loaded with context length of only 4096 tokens"}`, "context_length_exceeded", ""},
		{"OpenRouter", 400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"code\":\"context_length_exceeded\"}}"}}}`, "context_length_exceeded", ""},
		{"LiteLLM", 400, `{"error":{"message":"litellm.ContextWindowExceededError: PROMPT","type":null,"param":null,"code":"400"}}`, "context_length_exceeded", ""},

		{"nobody knows", 400, `{"error":{"message":"PROMPT","type":"invalid_request_error","code":"weird_thing"}}`, "", ""},
		{"of tokens a minute", 413, `{"error":{"message":"Request too large for model m on tokens per minute (TPM)","type":"tokens","code":"rate_limit_exceeded"}}`, "", ""},
		{"a page", 413, `<html>maximum context length</html>`, "", ""},
		{"another status", 500, `{"error":{"message":"maximum context length","code":"context_length_exceeded"}}`, "", ""},
		{"a door", 403, `{"error":{"code":"content_filter"}}`, "", ""},
		{"prose for a param", 400, `{"error":{"param":"PROMPT it was","code":"unsupported_value"}}`, "unsupported_value", ""},
		{"two fields", 400, `{"b":{"param":"seed"},"a":{"param":"top_p"},"c":{"param":"stop"}}`, "invalid_value", "top_p"},
		{"very deep", 400, strings.Repeat(`{"error":`, 60) + `{"code":"content_filter"}` + strings.Repeat(`}`, 60), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			})
			for _, p := range []Provider{
				client(t, url), newAnthropic(t, AnthropicConfig{BaseURL: url, APIKey: testKey}), newBedrock(t, BedrockConfig{BaseURL: url}),
			} {
				for _, stream := range []bool{false, true} {
					_, err := call(t.Context(), t, p, request(stream))
					e, ok := err.(*Error)
					check.That(t, ok && e.Status == tt.status && e.Fault == tt.fault && e.Param == tt.param && e.Failure == Refused,
						"%T, stream %t: %+v, want %q of %q", p, stream, err, tt.fault, tt.param)
					check.That(t, tt.param == "" || strings.HasSuffix(err.Error(), "param "+tt.param), "the log has %q", err)
				}
			}
		})
	}
}
