package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// counter stands in front of dev and counts the chat completions asked for.
func counter(t *testing.T, d *dev) (front string, count *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(d.url)
	check.OK(t, err)
	count = new(atomic.Int64)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		if r.In.URL.Path == "/v1/chat/completions" {
			count.Add(1)
		}
		pass(r, target)
	}}
	server := httptest.NewServer(http.Handler(proxy))
	t.Cleanup(server.Close)
	return server.URL, count
}

// pass passes a request on, once its body is here: a proxy's server closes the body when
// an answer comes early, and then the proxy drops the connection and the answer.
func pass(r *httputil.ProxyRequest, target *url.URL) {
	body, err := io.ReadAll(r.In.Body)
	if err != nil {
		return // the caller has left
	}
	r.Out.Body = io.NopCloser(bytes.NewReader(body))
	r.SetURL(target)
}

// OpenAI's own client gets answers, streams, the list of features, and its own
// error with the right wait, after which it does not come again.
func TestOpenAIClient(t *testing.T) {
	t.Parallel()
	const capacity = 3000
	config := strings.Join([]string{
		`providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}}}`,
		`models: {small: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}}}`,
		`features: {docqa: {model: small, max_output_tokens: 200}, cv: {model: small, max_output_tokens: 100, tiers: [user]}}`,
		`tiers: {anonymous: {max_input_tokens: 1000, max_output_tokens: 200, limits: {tokens: {capacity: 3000, per: 1h}}},`,
		`        user: {max_input_tokens: 1000, max_output_tokens: 200, limits: {tokens: {capacity: 3000, per: 1h}}}}`,
		`fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}`,
	}, "\n")
	here, served := startDev(t, writeConfig(t, config)), startServe(t, writeConfig(t, config))
	for _, test := range []struct {
		name            string
		d               *dev
		token, features string
	}{
		{"anonymous", here, "", "docqa"},
		{"user", here, here.token(t, "123"), "cv, docqa"},
		{"anonymous, of serve", served, "", "docqa"},
		{"user, of serve", served, served.token(t, "123"), "cv, docqa"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			front, count := counter(t, test.d)
			env := []string{"TOKENFUSE_URL=" + front}
			if test.token != "" {
				env = append(env, "TOKENFUSE_TOKEN="+test.token)
			}
			got := run(t, env, "node", "examples/openai.mjs")
			check.Must(t, got.code == 0 && got.stderr == "", "exit code %d: %s\n%s", got.code, got.stdout, got.stderr)

			text := `This is the built-in upstream,.* real answers\.`
			shape := regexp.MustCompile(`^features: ` + test.features + `
answer: (` + text + `)
it took (\d+) tokens
stream: (` + text + `)
it took (\d+) tokens
((?:call \d+: \d+ tokens\n)+)call (\d+): RateLimitError: 429 This call may need .*You can ask again in .*
limit tokens: (\d+) requested, (\d+) remaining, wait (\d+) s
$`)
			m := shape.FindStringSubmatch(got.stdout)
			check.Must(t, m != nil, "printed:\n%s", got.stdout)
			check.That(t, m[1] == m[3] && m[2] == m[4], "the stream is not the answer:\n%s", got.stdout)
			last := number(t, m[6])
			want := int64(2 + last)
			check.That(t, count.Load() == want, "%d requests for %d calls: the client came again", count.Load(), want)

			used := number(t, m[2]) + number(t, m[4])
			for line := range strings.Lines(m[5]) {
				var call, tokens int
				if _, err := fmt.Sscanf(line, "call %d: %d tokens", &call, &tokens); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				used += tokens
			}
			requested, remaining, wait := number(t, m[7]), number(t, m[8]), number(t, m[9])
			refilled := remaining - (capacity - used)
			if refilled < 0 || refilled > 60 { // 50 a minute
				t.Errorf("%d used and %d remaining of %d", used, remaining, capacity)
			}
			// The tokens that are missing come at capacity an hour.
			right := int(math.Ceil(float64(requested-remaining) * 3600 / capacity))
			if wait > right || wait < right-2 { // of the last token a part is there already
				t.Errorf("wait %d s, want about %d", wait, right)
			}
		})
	}
}

// What OpenAI's helpers ask for in JSON they get, and can send back.
func TestOpenAIParse(t *testing.T) {
	t.Parallel()
	eachWay(t, writeConfig(t, strings.Join([]string{
		`providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}}}`,
		`models: {small: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}}}`,
		`features: {ask: {model: small, max_output_tokens: 400, allow: [response_format]}}`,
		`tiers: {anonymous: {max_input_tokens: 3000, max_output_tokens: 400, limits: {tokens: {capacity: 100000, per: 1h}}}}`,
		`fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}`,
	}, "\n")), func(t *testing.T, d *dev) {
		got := run(t, []string{"TOKENFUSE_URL=" + d.url}, "node", "e2e/testdata/parse.mjs")
		const want = `{"steps":[{"why":"text","result":3},{"why":"text","result":3}],"choice":{"kind":"a","at":"2026-01-31T12:00:00Z"},` +
			`"tree":{"name":"text","children":[]},"maybe":"text","code":"XXX-1"}`
		check.That(t, got.stdout == want+"\n"+want+" true\nstring\n" && got.code == 0, "%+v", got)
	})
}

// Tools, images, reasoning and embeddings reach the built-in model and come back as the
// client knows them from OpenAI.
func TestOpenAIWholeSurface(t *testing.T) {
	t.Parallel()
	eachWay(t, writeConfig(t, strings.Join([]string{
		`providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}}}`,
		`models:`,
		`  small: {provider: main, id: gpt-4o, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}, image_tokens: {rule: gpt-4o}}`,
		`  vectors: {provider: main, kind: embedding, id: text-embedding-3-small, tokenizer: cl100k_base, context: 8192, price_per_mtok: {input: "1"}}`,
		`features: {ask: {model: small, max_output_tokens: 500, allow: [tools, images], reasoning_effort: [low], reasoning: true}, search: {model: vectors}}`,
		`tiers: {anonymous: {max_input_tokens: 3000, max_output_tokens: 500, max_tools: 1, max_images: 1, limits: {tokens: {capacity: 100000, per: 1h}}}}`,
		`fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}`,
	}, "\n")), func(t *testing.T, d *dev) {
		got := run(t, nil, "node", "local/upstream/testdata/client.mjs", d.url, "anonymous", "ask", "search")
		check.That(t, got.code == 0 && got.stdout == `runTools [{"city":"text"}] true true
stream [[0,"get_weather","{\"city\":\"text\"}"],[1,"get_weather","{\"city\":\"text\"}"]] tool_calls 2
forced null {"city":"text"} tool_calls
image true 96
embeddings 3 256 true true
reasoning true true
`, "%+v", got)
	})
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	check.OK(t, err)
	return n
}
