package lambda

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
	"github.com/tokenfuse/tokenfuse/testkit/stagetest"
)

const testPolicy = `
providers: {main: {kind: openai, base_url: "STAGE/v1", api_key: {env: MODEL_KEY}, timeout: 30s}}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0.40", cached_input: "0.10", output: "1.60"}}
  vectors: {kind: embedding, provider: main, id: text-embedding-3-small, tokenizer: cl100k_base, context: 8192, price_per_mtok: {input: "0.40"}}
features:
  ask: {model: small, system: "You answer questions.", max_output_tokens: 400}
  search: {model: vectors}
  cv:  {model: small, max_output_tokens: 400, tiers: [user], quota: {capacity: 1, per: 24h}}
tiers:
  anonymous: {max_input_chars: 2000, max_input_tokens: 1000, max_output_tokens: 400, max_in_flight: 4, pool: anonymous,
              limits: {tokens: {capacity: 20000, per: 100d}, requests: {capacity: 20, per: 1m}}}
  user:      {max_input_tokens: 1000, max_output_tokens: 400, max_in_flight: 4,
              limits: {tokens: {capacity: 20000, per: 100d}, requests: {capacity: 20, per: 1m}, spend: {usd: "1.00", per: 24h}}}
pools: {anonymous: {usd: "1.00", per: 1h}, all: {usd: "5.00", per: 1h}}
auth: {issuer: "STAGE", audience: "test", jwks_url: "STAGE/dev/jwks.json"}
fingerprint: {secret: {env: FINGERPRINT_SECRET}}
admin: {allow_arns: ["arn:aws:iam::123456789012:user/support"]}
alarm: {threshold_usd: "0.000001", repeat_every: 1h, fuse: anonymous_off}
`

// Secrets that no log, error or answer may show.
const (
	modelKey          = "sk-the-key-of-the-model"
	fingerprintSecret = "the-secret-of-the-fingerprints"
)

// patience bounds what ends by itself much sooner, even on a busy machine.
const patience = 60 * time.Second

// rig is the world around the functions: a store, a model, an issuer of tokens, and
// what takes pages.
type rig struct {
	t     *testing.T
	dir   string // of the functions' code
	stage *stage.Stage
	env   []string

	// Set before the first call; nil: nothing happens.
	onStore func(body string)                    // before a request reaches the store
	onModel func(next http.Handler) http.Handler // around the model
	edit    func(yaml string) string             // of the configuration
}

// newRig makes a rig; change may set hooks.
func newRig(t *testing.T, change ...func(*rig)) *rig {
	t.Helper()
	g := &rig{t: t, dir: t.TempDir()}
	for _, f := range change {
		f(g)
	}
	g.stage = stagetest.New(t, stage.Options{Model: g.onModel})
	g.env = append(g.stage.Environ(), "MODEL_KEY="+modelKey, "FINGERPRINT_SECRET="+fingerprintSecret, "AWS_ENDPOINT_URL_DYNAMODB="+g.serve(g.store()))
	g.configure(strings.ReplaceAll(testPolicy, "STAGE", g.stage.URL))
	return g
}

// configure writes a configuration, and the tree that it has before it is edited: that of
// another file then.
func (g *rig) configure(yaml string) {
	g.t.Helper()
	file := filepath.Join(g.dir, "tokenfuse.yaml")
	tree, err := policy.Tree([]byte(yaml))
	check.OK(g.t, err)
	check.OK(g.t, os.WriteFile(file+policy.TreeSuffix, tree, 0o600))
	if g.edit != nil {
		yaml = g.edit(yaml)
	}
	check.OK(g.t, os.WriteFile(file, []byte(yaml), 0o600))
}

func (g *rig) serve(h http.Handler) (url string) {
	server := httptest.NewServer(h)
	g.t.Cleanup(server.Close)
	return server.URL
}

// store is the way to the engine, past the hook.
func (g *rig) store() http.Handler {
	to, err := url.Parse(g.stage.Store)
	check.OK(g.t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.onStore != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			g.onStore(string(body))
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		proxy.ServeHTTP(w, r)
	})
}

// start starts a function. Its log must show no secret, whatever the test does.
func (g *rig) start(name string, env ...string) *runtimeapi.Function {
	g.t.Helper()
	return g.run(name, "", env...)
}

// run is start, of another program under that name if path is not "".
func (g *rig) run(name, path string, env ...string) *runtimeapi.Function {
	g.t.Helper()
	if path == "" {
		path = program(g.t, name)
	}
	f, err := runtimeapi.Start(g.t.Context(), path, g.dir, append(g.env, env...)...)
	check.OK(g.t, err)
	g.t.Cleanup(func() {
		f.Close()
		refused := f.Refused()
		check.That(g.t, len(refused) == 0, "%s did what the runtime API refuses: %q", name, refused)
		for _, secret := range []string{modelKey, fingerprintSecret, question} {
			if strings.Contains(f.Log(), secret) {
				g.t.Errorf("the log of %s shows %q:\n%s", name, secret, f.Log())
			}
		}
		if g.t.Failed() {
			g.t.Logf("the log of %s:\n%s", name, f.Log())
		}
	})
	return f
}

// warm starts a function and waits until it asks for work.
func (g *rig) warm(name string, env ...string) *runtimeapi.Function {
	g.t.Helper()
	f := g.start(name, env...)
	select {
	case <-f.Ready():
	case <-f.Exited():
		g.t.Fatalf("%s ended: %s", name, f.Log())
	case <-time.After(patience):
		g.t.Fatalf("%s does not ask for work", name)
	}
	return f
}

// question is what callers ask: its text may be in no log.
const question = "What is the meaning of a token bucket?"

// chat is the body of a chat completion.
func chat(feature, text string, stream bool) string {
	options := map[string]any{"model": feature, "messages": []any{map[string]string{"role": "user", "content": text}}}
	if stream {
		options["stream"], options["stream_options"] = true, map[string]bool{"include_usage": true}
	}
	body, err := json.Marshal(options)
	if err != nil {
		panic(err)
	}
	return string(body)
}

// token makes a user's bearer token.
func (g *rig) token(sub string) string {
	g.t.Helper()
	token, err := g.stage.Issuer.Token(issuer.Claims{Subject: sub})
	check.OK(g.t, err)
	return token
}

// peek is what the store holds of an identity right now.
func (g *rig) peek(key string) bucket.State {
	g.t.Helper()
	b, err := bucket.New(g.stage.DynamoDB(), bucket.Options{Table: g.stage.Limits, LongestPeriod: tokensPeriod, ReserveTimeout: patience, AttemptTimeout: patience})
	check.OK(g.t, err)
	state, err := b.Peek(g.t.Context(), key)
	check.OK(g.t, err)
	return state
}

// Of the limit of tokens, which refills by next to nothing while a test lasts.
const (
	tokensCapacity = 20000
	tokensPeriod   = 100 * 24 * time.Hour
)

// used is how many of its tokens an identity has used.
func used(state bucket.State) int64 {
	l := bucket.Limit{Name: "tokens", Capacity: tokensCapacity, Period: tokensPeriod, Return: bucket.OnSettle}
	return tokensCapacity - state.Limit(l).Remaining
}

// spent is what the ledger holds of the last hour.
func (g *rig) spent() ledger.Summary {
	g.t.Helper()
	l, err := ledger.New(g.stage.DynamoDB(), ledger.Options{Table: g.stage.Spend})
	check.OK(g.t, err)
	now := time.Now()
	sum, err := l.Sum(g.t.Context(), now.Add(-time.Hour), now.Add(time.Minute))
	check.OK(g.t, err)
	return sum
}

// within gives what a wait may take.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// logged gives the lines of a function's log, metrics included.
func logged(t *testing.T, f *runtimeapi.Function) []map[string]any {
	t.Helper()
	return buffer.Lines(t, f.Log())
}
