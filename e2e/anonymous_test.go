package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// visitor is an anonymous browser.
type visitor struct {
	d      *dev
	agent  string
	header map[string]string // sent beside a browser's own
}

func (v visitor) send(ctx context.Context, method, url, body string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {v.agent}, "Accept-Language": {"en"}, "Sec-Fetch-Mode": {"cors"},
	}
	for name, value := range v.header {
		req.Header.Set(name, value)
	}
	return read(do(req, ""))
}

func (v visitor) ask(ctx context.Context, q question) (answer, error) {
	return v.send(ctx, http.MethodPost, v.d.url+"/v1/chat/completions", q.body())
}

// mustSend sends what must be answered, be it by a refusal.
func (v visitor) mustSend(t *testing.T, method, url, body string) answer {
	t.Helper()
	a, err := v.send(t.Context(), method, url, body)
	check.OK(t, err)
	return a
}

func (v visitor) mustAsk(t *testing.T, q question) answer {
	t.Helper()
	return v.mustSend(t, http.MethodPost, v.d.url+"/v1/chat/completions", q.body())
}

// solve gets a challenge and solves it with ALTCHA's own library.
func (v visitor) solve(t *testing.T, url string) (payload string) {
	t.Helper()
	a := v.mustSend(t, http.MethodGet, url, "")
	check.Must(t, a.status == http.StatusOK, "challenge: %d %s", a.status, a.body)
	got := run(t, []string{"CHALLENGE=" + a.body}, "sh", "-c", `printf %s "$CHALLENGE" | node examples/altcha-solve.mjs`)
	check.Must(t, got.code == 0 && got.stderr == "", "exit code %d: %s", got.code, got.stderr)
	return strings.TrimSpace(got.stdout)
}

// wantRefused asserts that the answer sends its caller to the challenge, and
// gives what it says.
func (d *dev) wantRefused(t *testing.T, a answer, code string) (message string) {
	t.Helper()
	c, err := a.completion()
	check.Must(t, err == nil && c.Error != nil, "no refusal: %v: %d %s", err, a.status, a.body)
	check.That(t, a.status == http.StatusForbidden && c.Error.Code == code && c.Error.Type == "invalid_request_error" && c.Error.Message != "" && c.Error.ChallengeURL == d.url+"/v1/challenge" && a.header.Get("X-Should-Retry") == "false",
		"want %s: %d %s %v", code, a.status, a.body, a.header)
	return c.Error.Message
}

// A visitor is served, then asked for a challenge, solves it with ALTCHA's library
// and goes on with a pass, through four instances that share nothing in memory.
// Nothing else is taken for a solution or a pass.
func TestChallenge(t *testing.T) {
	t.Parallel()
	const (
		capacity = 1000
		soft     = capacity / 2 // by client and day it is up to 20 % more or less
		calls    = 8            // of a pass
	)
	d := startDev(t, writeConfig(t, `
providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}}}
models: {small: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}}}
features: {ask: {model: small, max_output_tokens: 100}}
tiers:
  anonymous: {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 32, limits: {tokens: {capacity: 1000, per: 100d}}, challenge_at: 0.5,
              network: {tokens: {capacity: 10000, per: 100d}}, passes: {capacity: 30, per: 1h, ttl: 30m, calls: 8}}
challenge: {kind: altcha, secret: {env: E2E_NO_SUCH_KEY}}
fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}
`), "--instances", "4")
	v := visitor{d: d, agent: "Mozilla/5.0 (one)"}
	q := question{feature: "ask", text: strings.Repeat("Why? ", 40), most: 1}

	used, cost := 0, 0
	a := v.mustAsk(t, q)
	for ; a.status == http.StatusOK; a = v.mustAsk(t, q) {
		c, err := a.completion()
		check.Must(t, err == nil, "%v: %s", err, a.body)
		cost = c.Usage.Total
		used += cost
	}
	required := d.wantRefused(t, a, "challenge_required")
	check.That(t, used <= soft*6/5 && used+cost > soft*4/5, "challenged after %d tokens of %d, by a call of %d", used, capacity, cost)
	forging := visitor{d, v.agent, map[string]string{"X-Forwarded-For": "198.51.100.1", "CloudFront-Viewer-Address": "198.51.100.1:1"}}
	d.wantRefused(t, forging.mustAsk(t, q), "challenge_required")
	neighbour := visitor{d: d, agent: "Mozilla/5.0 (another)"}
	if a := neighbour.mustAsk(t, q); a.status != http.StatusOK {
		t.Errorf("a neighbour: %d %s", a.status, a.body)
	}

	// A solution buys one pass, even if it arrives many times at once.
	c, _ := a.completion()
	url := c.Error.ChallengeURL
	payload := v.solve(t, url)
	send := func(body string) answer { return v.mustSend(t, http.MethodPost, url, body) }
	var bought struct {
		Verified      bool
		Payload, Pass string
		ExpiresAt     int64 `json:"expires_at"`
	}
	start, passes, messages := time.Now(), 0, map[string]bool{required: true}
	for _, a := range together(t, 8, func(int) (answer, error) {
		return v.send(t.Context(), http.MethodPost, url, `{"payload":"`+payload+`"}`)
	}) {
		if a.status != http.StatusOK {
			messages[d.wantRefused(t, a, "challenge_failed")] = true
			continue
		}
		passes++
		err := json.Unmarshal([]byte(a.body), &bought)
		check.Must(t, err == nil, "%v: %s", err, a.body)
	}
	good := time.Unix(bought.ExpiresAt, 0).Sub(start)
	check.Must(t, passes == 1 && len(messages) == 2 && bought.Verified && bought.Pass != "" && bought.Payload == bought.Pass && good >= 29*time.Minute && good <= 31*time.Minute,
		"%d passes, good for %s: %+v, %v", passes, good, bought, messages)

	// Each refusal says something of its own.
	refused := func(name string, a answer) {
		t.Helper()
		message := d.wantRefused(t, a, "challenge_failed")
		check.That(t, !messages[message], "%s: not told apart: %s", name, message)
		messages[message] = true
	}
	refused("no solution", send(`{"payload":null}`))
	refused("nonsense", send(`{"payload":"%%%"}`))
	refused("no work done", send(`{"payload":"`+tamper(t, payload, "derivedKey")+`"}`))
	refused("a challenge of one's own", send(`{"payload":"`+tamper(t, payload, "signature")+`"}`))
	withPass := func(pass string) visitor {
		return visitor{d, "an SDK with an agent of its own", map[string]string{"X-Challenge-Pass": pass}}
	}
	refused("a pass of nonsense", withPass("nonsense").mustAsk(t, q))
	refused("a forged pass", withPass("AAAAAA"+bought.Pass[6:]).mustAsk(t, q))

	// The pass is good at each instance, and at all of them together for its calls.
	holder := withPass(bought.Pass)
	for range 4 {
		a := holder.mustSend(t, http.MethodGet, d.url+"/v1/limits", "")
		check.That(t, a.status == http.StatusOK && strings.Contains(a.body, `"id":"pass#`), "limits of the pass: %d %s", a.status, a.body)
	}
	served := 0
	for _, a := range together(t, calls+4, func(int) (answer, error) { return holder.ask(t.Context(), q) }) {
		if a.status == http.StatusOK {
			served++
		} else if m := d.wantRefused(t, a, "challenge_required"); !strings.Contains(m, "pass is used up") {
			t.Errorf("the pass: %s", m)
		}
	}
	// Of calls at one moment the one whose clock reading is the oldest may be told
	// to wait for the difference, so what is left is asked for in turn.
	for served < calls && holder.mustAsk(t, q).status == http.StatusOK {
		served++
	}
	check.That(t, served == calls && holder.mustAsk(t, q).status != http.StatusOK, "%d calls with a pass for %d, or more", served, calls)
}

// tamper changes a character of a field in a solution.
func tamper(t *testing.T, payload, field string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(payload)
	check.OK(t, err)
	before, after, found := strings.Cut(string(raw), `"`+field+`":"`)
	check.Must(t, found, "no %s in %s", field, raw)
	changed := "0"
	if after[0] == '0' {
		changed = "1"
	}
	return base64.StdEncoding.EncodeToString([]byte(before + `"` + field + `":"` + changed + after[1:]))
}

// OpenAI's own client, with the configuration that comes with the project, is
// refused with its own error, does not come again by itself, and goes on with a
// pass.
func TestChallengeInOpenAIClient(t *testing.T) {
	t.Parallel()
	const calls = 8
	d := startDev(t, "tokenfuse.yaml")
	front, count := counter(t, d)
	got := run(t, nil, "node", "examples/challenge.mjs", front)
	check.Must(t, got.code == 0 && got.stderr == "", "exit code %d: %s\n%s", got.code, got.stdout, got.stderr)
	shape := regexp.MustCompile(`^(call \d+: \d+ tokens\n){4,7}PermissionDeniedError: challenge_required: 403 Please solve a challenge first.*
solved in \d+ ms, the pass is good for (1[78]\d\d) s
(call \d+: \d+ tokens\n)+$`)
	check.That(t, shape.MatchString(got.stdout) && strings.Count(got.stdout, "call ") == calls, "printed:\n%s", got.stdout)
	check.Equal(t, count.Load(), calls+1, "requests for %d calls and a refusal", calls)
}
