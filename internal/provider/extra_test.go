package provider

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What the owner adds goes with every request, beside what the client says itself.
func TestSettingsOnTheWire(t *testing.T) {
	const extra = `{"reasoning":{"effort":"low","note":"a < b"},"top_k":5}`
	for _, tt := range []struct {
		name    string
		make    func(url string) Provider
		stream  bool
		extra   string
		uri     string
		headers map[string]string // "": must not be there
		body    string            // of what is said beside the messages
	}{
		{"as it is", func(url string) Provider { return clientWith(t, OpenAIConfig{BaseURL: url, APIKey: testKey}) }, true, "",
			"/v1/chat/completions", map[string]string{"Authorization": "Bearer " + testKey, "Api-Key": ""},
			`{"model":"m-1","max_completion_tokens":100,"stream":true,"stream_options":{"include_usage":true}}`},
		{"Azure", func(url string) Provider {
			return clientWith(t, OpenAIConfig{BaseURL: url + "/?api-version=2024-10-21&a=%2F", APIKey: testKey, KeyHeader: "api-key"})
		}, false, extra,
			"/v1/chat/completions?api-version=2024-10-21&a=%2F", map[string]string{"Api-Key": testKey, "Authorization": ""},
			`{"model":"m-1","max_completion_tokens":100,"reasoning":{"effort":"low","note":"a < b"},"top_k":5}`},
		{"headers", func(url string) Provider {
			return clientWith(t, OpenAIConfig{BaseURL: url, APIKey: testKey, NoStreamOptions: true, Headers: map[string]string{"X-Title": "My app", "Content-Type": "text/plain"}})
		}, true, extra,
			"/v1/chat/completions", map[string]string{"X-Title": "My app", "Content-Type": "application/json"},
			`{"model":"m-1","max_completion_tokens":100,"stream":true,"reasoning":{"effort":"low","note":"a < b"},"top_k":5}`},
		{"Anthropic", func(url string) Provider {
			return newAnthropic(t, AnthropicConfig{BaseURL: strings.TrimSuffix(url, "/v1") + "?a=b", APIKey: testKey, Headers: map[string]string{"Anthropic-Beta": "x", "X-Api-Key": "y"}})
		}, true, extra,
			"/v1/messages?a=b", map[string]string{"Anthropic-Beta": "x", "X-Api-Key": testKey},
			`{"model":"m-1","max_tokens":100,"stream":true,"reasoning":{"effort":"low","note":"a < b"},"top_k":5}`},
		{"Bedrock", func(url string) Provider {
			return newBedrock(t, BedrockConfig{BaseURL: strings.TrimSuffix(url, "/v1")})
		}, false, extra,
			"/model/m-1/converse", nil,
			`{"inferenceConfig":{"maxTokens":100},"additionalModelRequestFields":{"reasoning":{"effort":"low","note":"a < b"},"top_k":5}}`},
		{"Bedrock's stream", func(url string) Provider {
			return newBedrock(t, BedrockConfig{BaseURL: strings.TrimSuffix(url, "/v1")})
		}, true, extra,
			"/model/m-1/converse-stream", nil,
			`{"inferenceConfig":{"maxTokens":100},"additionalModelRequestFields":{"reasoning":{"effort":"low","note":"a < b"},"top_k":5}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, calls := server(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var got, want map[string]any
				check.Must(t, json.Unmarshal(body, &got) == nil && json.Unmarshal([]byte(tt.body), &want) == nil, "sent %s", body)
				delete(got, "messages")
				if g, w := string(mustJSON(t, got)), string(mustJSON(t, want)); g != w || r.RequestURI != tt.uri {
					t.Errorf("sent to %s: %s, want to %s: %s", r.RequestURI, g, tt.uri, w)
				}
				for name, want := range tt.headers {
					got := r.Header.Values(name)
					check.That(t, strings.Join(got, "|") == want, "%s is %q, want %q", name, got, want)
				}
				w.WriteHeader(http.StatusTeapot)
			})
			req := request(tt.stream)
			if tt.extra != "" {
				req.Extra = json.RawMessage(tt.extra)
			}
			_, err := call(t.Context(), t, tt.make(url), req)
			if wantFailure(t, err, Failed, http.StatusTeapot); calls.Load() != 1 {
				t.Errorf("%d requests", calls.Load())
			}
		})
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := encodeJSON(v)
	check.OK(t, err)
	return b
}

// A request whose extra fields are no object is not sent.
func TestExtraThatIsNone(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		url, calls := d.serve(t, d.answer(stream, d.all(stream)))
		for _, extra := range []string{`[]`, `{"a":`, `7`} {
			req := request(stream)
			req.Extra = json.RawMessage(extra)
			_, err := call(t.Context(), t, d.make(t, url, nil), req)
			if wantFailure(t, err, Unreachable, 0); calls.Load() != 0 {
				t.Errorf("%s: %d requests", extra, calls.Load())
			}
		}
	})
}

// No variable puts a proxy, which reads prompts and keys, between us and a provider.
func TestNoProxy(t *testing.T) {
	check.That(t, newHTTPClient().Transport.(*http.Transport).Proxy == nil, "calls go through a proxy if the environment says so")
}
