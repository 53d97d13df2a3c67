package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// What is wrong with a flag or the environment is said before anything is served.
func TestServeRefuses(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_DYNAMODB", "LIMITS_TABLE", "SPEND_TABLE", "TOKENFUSE_CONFIG"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for args, says := range map[string]string{
		"--trusted-proxies 10.0.0.0/8,0.0.0.0/0":  `--trusted-proxies: "0.0.0.0/0" is every address`,
		"--trusted-proxies proxy":                 `--trusted-proxies: "proxy" is neither`,
		"--public-url ai.example.com":             "--public-url must be a scheme and a host",
		"--public-url https://ai.example.com/api": "--public-url must be a scheme and a host",
		"--drain=-1s":                        "--drain",
		"--alarm-every=-1s":                  "--alarm-every",
		"--metrics statsd":                   "--metrics",
		"--tls-cert x":                       "--tls-key",
		"--tls-cert absent --tls-key absent": "--tls-cert and --tls-key: open absent",
		"--config absent.yaml":               "absent.yaml",
		"":                                   "AWS_REGION is not set",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"serve", "--config", "../../tokenfuse.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, strings.Fields(args)...), streams{out: &out, err: &errs})
		check.That(t, code != 0 && strings.Contains(errs.String(), says), "%s: code %d: %s", args, code, &errs)
	}
}

// A process that lives for days lets in who has a key now, pages by what is set now, and
// says whose denials a status has.
func TestServeRenews(t *testing.T) {
	_, limits := enginetest.Table(t)
	_, spend := enginetest.SpendTable(t)
	paged := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paged <- r.URL.Path }))
	defer receiver.Close()
	key := strings.Repeat("k", 32)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": enginetest.URL(), "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any",
		"SERVE_SECRET": "a-secret-of-some-length", "SERVE_KEY": key, "SERVE_PAGES": receiver.URL + "/old"} {
		t.Setenv(name, value)
	}
	p, err := policy.Parse([]byte(`
providers: {main: {kind: openai, base_url: "https://127.0.0.1:1/v1"}}
models: {small: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}}}
features: {ask: {model: small, max_output_tokens: 100}}
tiers: {anonymous: {max_input_tokens: 200, max_output_tokens: 100, limits: {requests: {capacity: 1, per: 1h}}}}
fingerprint: {secret: {env: SERVE_SECRET}}
alarm: {threshold_usd: "1", webhook: {url: {env: SERVE_PAGES}}}
admin: {keys: {ann: [{env: SERVE_KEY}]}}
`))
	check.OK(t, err)
	f, err := (&serveCommand{LimitsTable: limits, SpendTable: spend}).build(t.Context(), streams{out: io.Discard}, p, slog.New(slog.DiscardHandler))
	check.OK(t, err)
	status := func(key string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/admin/status", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		f.admin.Now().ServeHTTP(w, r)
		return w
	}
	for range 2 { // the second does not fit the limit
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"ask","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`))
		r.Header.Set("Content-Type", "application/json")
		f.chat.ServeHTTP(httptest.NewRecorder(), r)
	}
	w := status(key)
	check.That(t, w.Code == http.StatusOK && strings.Contains(w.Body.String(), `"denials":{"requests":1},"denials_of":"process"`), "%d %s", w.Code, w.Body)

	page := func(want string) {
		t.Helper()
		_, err := newest{f.pages}.Publish(t.Context(), &sns.PublishInput{Subject: aws.String("s"), Message: aws.String("m")})
		check.OK(t, err)
		check.Equal(t, <-paged, want, "paged at")
	}
	page("/old")
	t.Setenv("SERVE_KEY", strings.Repeat("n", 32))
	t.Setenv("SERVE_PAGES", receiver.URL+"/new")
	_, admins := f.admin.Renew(t.Context())
	_, pages := f.pages.Renew(t.Context())
	check.That(t, admins && pages && status(key).Code == http.StatusForbidden && status(strings.Repeat("n", 32)).Code == http.StatusOK, "the old key counts, or the new one does not")
	page("/new")

	t.Setenv("SERVE_KEY", "short") // and cannot be used
	_, admins = f.admin.Renew(t.Context())
	check.That(t, !admins && status(strings.Repeat("n", 32)).Code == http.StatusOK, "nobody is let in any more")
}
