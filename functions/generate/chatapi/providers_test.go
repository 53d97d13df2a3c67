package chatapi

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Each kind is called in its own protocol, with its own credentials, at the address
// in the configuration.
func TestProvidersByKind(t *testing.T) {
	t.Parallel()
	var path, auth string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, auth = r.URL.Path, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer s.Close()
	parts := Parts{
		Secret: func(_ context.Context, s policy.Secret) (string, error) { return "key-of-" + s.Env, nil },
		AWS: aws.Config{Region: "eu-west-1", Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
		})},
	}
	for _, tt := range []struct {
		from       policy.Provider
		path, auth string
	}{
		{policy.Provider{Kind: "openai", BaseURL: s.URL + "/v1"}, "/v1/chat/completions", ""},
		{policy.Provider{Kind: "openai", BaseURL: s.URL + "/v1", APIKey: &policy.Secret{Env: "O"}}, "/v1/chat/completions", "Bearer key-of-O"},
		{policy.Provider{Kind: "anthropic", BaseURL: s.URL, APIKey: &policy.Secret{Env: "A"}}, "/v1/messages", "key-of-A"},
		{policy.Provider{Kind: "bedrock", BaseURL: s.URL}, "/model/m/converse", "AWS4-HMAC-SHA256 Credential=AKID/"},
	} {
		p, err := parts.Provider(t.Context(), &tt.from)
		check.OK(t, err)
		_, err = p.Call(t.Context(), provider.Request{
			Model: "m", Messages: []openai.Message{{Role: "user", Content: "hi"}}, MaxOutputTokens: 1, MaxTokensField: "max_tokens"})
		check.That(t, path == tt.path && strings.HasPrefix(auth, tt.auth) && (tt.auth == "") == (auth == ""),
			"%s: called %s with %q: %v", tt.from.Kind, path, auth, err)
	}

	parts.AWS = aws.Config{}
	for _, from := range []policy.Provider{{Kind: "bedrock"}, {Kind: "anthropic"}, {Kind: "other"}} {
		if _, err := parts.Provider(t.Context(), &from); err == nil {
			t.Errorf("kind %s is made of nothing", from.Kind)
		}
	}
}

// What a model thinks is shown where the feature says so, and is no answer.
func TestReasoningIsShown(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text := "Hello."
		if strings.Contains(string(body), "no text") {
			text = ""
		}
		check.That(t, strings.Contains(string(body), `"stream":true`), "sent %s", body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}`+"\n\n"+
			`data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"Well, "}}`+"\n\n"+
			`data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hi."}}`+"\n\n"+
			`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"`+text+`"}}`+"\n\n"+
			`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`+"\n\n"+
			`data: {"type":"message_stop"}`+"\n\n")
	}))
	defer model.Close()
	g := newRig(t, func(yaml string) string {
		yaml = strings.Replace(yaml, "allow: [system, response_format]", "allow: [system]", 1)
		yaml = strings.ReplaceAll(yaml, "max_tokens_field: max_completion_tokens, ", "")
		yaml = strings.Replace(yaml, "cv:    {", "cv:    {reasoning: true, ", 1)
		return regexp.MustCompile(`main: \{[^}]*\}`).ReplaceAllString(yaml, `main: {kind: anthropic, base_url: "`+model.URL+`", api_key: {env: TEST_SECRET}}`)
	})
	g.freeze(0)
	token, used := g.token("anna", ""), 0
	before := g.remaining(token)["cv"]
	for _, tt := range []struct {
		body  string
		want  []string // in this order
		quota int
	}{
		{`{"model":"cv","messages":[{"role":"user","content":"hi"}]}`, []string{`"content":"Hello."`, `"reasoning_content":"Well, hi."`, `"finish_reason":"stop"`}, 1},
		{`{"model":"cv","messages":[{"role":"user","content":"hi"}],"stream":true}`,
			[]string{`"delta":{"reasoning_content":"Well, "}`, `"delta":{"reasoning_content":"hi."}`, `"delta":{"content":"Hello."}`, `"finish_reason":"stop"`, "[DONE]"}, 1},
		{`{"model":"cv","messages":[{"role":"user","content":"no text"}]}`, []string{`"content":""`, `"reasoning_content":"Well, hi."`, `"notice":"The model gave no text.`}, 0},
		{`{"model":"cv","messages":[{"role":"user","content":"no text"}],"stream":true}`, []string{`"reasoning_content":"hi."`, `"notice":"The model gave no text.`, "[DONE]"}, 0},
		{`{"model":"docqa","messages":[{"role":"user","content":"hi"}]}`, []string{`"content":"Hello."`}, 0},
		{`{"model":"docqa","messages":[{"role":"user","content":"hi"}],"stream":true}`, []string{`"delta":{"content":"Hello."}`, "[DONE]"}, 0},
	} {
		a := g.chat(token, tt.body)
		rest, ok := a.body, true
		for _, want := range tt.want {
			if _, rest, ok = strings.Cut(rest, want); !ok {
				break
			}
		}
		used += tt.quota
		check.That(t, a.status == http.StatusOK && ok && strings.Contains(a.body, "Well") == strings.Contains(tt.body, "cv"),
			"%s: answered %d %s", tt.body, a.status, a.body)
		got := before - g.remaining(token)["cv"]
		check.That(t, int(got) == used, "%s: %d of the quota, want %d", tt.body, got, used)
	}
}

// A feature whose model is Anthropic's answers its callers as any other.
func TestAnthropicFeature(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		check.That(t, strings.Contains(string(body), `"system":[{"type":"text","text":"You answer questions."}]`), "sent %s", body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}`+"\n\n"+
				`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello."}}`+"\n\n"+
				`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`+"\n\n"+
				`data: {"type":"message_stop"}`+"\n\n")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"type":"message","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":5}}`)
	}))
	defer model.Close()
	g := newRig(t, func(yaml string) string {
		yaml = strings.Replace(yaml, "allow: [system, response_format]", "allow: [system]", 1)
		yaml = strings.ReplaceAll(yaml, "max_tokens_field: max_completion_tokens, ", "")
		return regexp.MustCompile(`main: \{[^}]*\}`).ReplaceAllString(yaml, `main: {kind: anthropic, base_url: "`+model.URL+`", api_key: {env: TEST_SECRET}}`)
	})
	g.freeze(0)
	token := g.token("anna", "")
	before := g.remaining(token)["tokens"]
	for _, body := range []string{
		`{"model":"docqa","messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"docqa","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`,
	} {
		a := g.chat(token, body)
		check.That(t, a.status == http.StatusOK && strings.Contains(a.body, "Hello.") && strings.Contains(a.body, `"total_tokens":14`),
			"answered %d %s", a.status, a.body)
	}
	// What it cannot do is refused by name, before anything is asked for.
	sends := g.sends.Load()
	for body, param := range map[string]string{
		`{"model":"docqa","messages":[{"role":"user","content":"hi"}],"temperature":0.2}`:                                    "temperature",
		`{"model":"docqa","messages":[{"role":"user","content":"hi"}],"seed":7}`:                                             "seed",
		`{"model":"docqa","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}}`:             "response_format",
		`{"model":"docqa","messages":[{"role":"user","content":" "}]}`:                                                       "messages",
		`{"model":"docqa","messages":[{"role":"user","content":"hi"}],"temperature":1,"top_p":1,"presence_penalty":0,"n":1}`: "",
	} {
		a := g.chat(token, body)
		if param == "" {
			check.Equal(t, a.status, http.StatusOK, "neutral values: … %s", a.body)
			continue
		}
		e := g.wireError(a)
		check.That(t, a.status == http.StatusBadRequest && value(e.Param) == param, "%s: %d %s", body, a.status, a.body)
	}
	check.Equal(t, g.sends.Load()-sends, 2, "requests to the store")
	check.Equal(t, before-g.remaining(token)["tokens"], 42, "42 tokens were billed, … are counted")
}
