package chatapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

const renewedPolicy = `
providers: {main: {kind: openai, base_url: "UPSTREAM", api_key: {env: MODEL_KEY}, timeout: 20s}}
models: {small: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0.40", output: "1.60"}}}
features: {ask: {model: small, max_output_tokens: 100}}
tiers: {anonymous: {max_input_chars: 2000, max_input_tokens: 1000, max_output_tokens: 400, max_in_flight: 9, limits: {requests: {capacity: 20, per: 1m}}}}
fingerprint: {secret: {env: FINGERPRINT_SECRET}}
`

// A process that lives for days calls with the key that is there now. What cannot be read,
// or cannot be used, leaves it as it is.
func TestRenew(t *testing.T) {
	t.Parallel()
	var used string // the key that the model saw last
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		used = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(model.Close)
	p, err := policy.Parse([]byte(strings.ReplaceAll(renewedPolicy, "UPSTREAM", model.URL)))
	check.OK(t, err)
	db, table := enginetest.Table(t)
	kept := map[string]string{"MODEL_KEY": "sk-1", "FINGERPRINT_SECRET": "a-secret-of-some-length"}
	reads := 0
	secret := func(_ context.Context, s policy.Secret) (string, error) {
		if v := kept[s.Env]; v != "" {
			return v, nil
		}
		return "", errors.New("throttled")
	}
	r, err := BuildRenewing(t.Context(), Parts{Policy: p, DynamoDB: db, Bucket: bucket.Options{Table: table}, Log: slog.New(slog.DiscardHandler),
		Secret: func(_ context.Context, s policy.Secret) (string, error) {
			return map[string]string{"MODEL_KEY": "sk-1", "FINGERPRINT_SECRET": "a-secret-of-some-length"}[s.Env], nil
		}}, func(_ context.Context, secrets []policy.Secret) func(context.Context, policy.Secret) (string, error) {
		reads++
		check.That(t, len(secrets) == 2, "%d secrets are read", len(secrets))
		return secret
	})
	check.OK(t, err)
	call := func(want string) {
		t.Helper()
		used = ""
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"ask","messages":[{"role":"user","content":"hi"}]}`))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		check.That(t, used == want, "called with %q, want %q: %d %s", used, want, w.Code, w.Body)
	}
	call("sk-1")
	for _, step := range []struct {
		name, key, fingerprint string
		renewed                bool
		want                   string
	}{
		{"nothing has changed", "sk-1", kept["FINGERPRINT_SECRET"], false, "sk-1"},
		{"another key", "sk-2", kept["FINGERPRINT_SECRET"], true, "sk-2"},
		{"one that cannot be read", "", kept["FINGERPRINT_SECRET"], false, "sk-2"},
		{"one that cannot be used", "sk 3", kept["FINGERPRINT_SECRET"], false, "sk-2"},
		{"the next, while another cannot be read", "sk-4", "", true, "sk-4"},
		{"all as it was", "sk-4", kept["FINGERPRINT_SECRET"], false, "sk-4"},
	} {
		kept["MODEL_KEY"], kept["FINGERPRINT_SECRET"] = step.key, step.fingerprint
		_, renewed := r.handlers.Renew(t.Context())
		check.That(t, renewed == step.renewed, "%s: renewed %t", step.name, renewed)
		call(step.want)
	}
	check.That(t, reads == 6, "%d reads", reads)
}
