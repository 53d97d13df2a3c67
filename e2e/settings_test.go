package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// recorder is a provider that answers as its script says and keeps what it received.
type recorder struct {
	url string

	mu   sync.Mutex
	uri  string
	head http.Header
	body map[string]any
}

func record(t *testing.T, answer http.HandlerFunc) *recorder {
	t.Helper()
	rec := &recorder{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rec.mu.Lock()
		rec.uri, rec.head, rec.body = r.RequestURI, r.Header, nil
		err := json.Unmarshal(body, &rec.body)
		check.That(t, err == nil, "%v: %s", err, body)
		rec.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	rec.url = server.URL
	return rec
}

// last is what came last.
func (rec *recorder) last() (uri string, head http.Header, body map[string]any) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.uri, rec.head, rec.body
}

// startDevWith is startDev with variables of the environment.
func startDevWith(t *testing.T, config string, env ...string) *dev {
	t.Helper()
	cmd := exec.Command(binary, "dev", "--listen", "127.0.0.1:0", "--config", config)
	cmd.Env = env
	return follow(t, cmd)
}

// vendorsConfig prices output alone, at $10 a million, so that a call of 100 tokens costs
// $0.001 at most.
func vendorsConfig(t *testing.T, providers, models string) string {
	t.Helper()
	price := `context: 100000, price_per_mtok: {input: "0", output: "10"}`
	features := ""
	for line := range strings.Lines(models) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			features += fmt.Sprintf("  %[1]s: {model: %[1]s, max_output_tokens: 100, reasoning: true, quota: {capacity: 3, per: 366d}}\n", name)
		}
	}
	return writeConfig(t, fmt.Sprintf(`
providers:
%s
models:
%s
features:
%s
tiers:
  user: {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 100,
         limits: {tokens: {capacity: 1000000, per: 366d}, spend: {usd: "1.00", per: 366d}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
`, providers, strings.ReplaceAll(models, "PRICE", price), features))
}

// Each setting of a provider and of a model arrives as it was written, and proxies of the
// environment see nothing.
func TestProviderSettings(t *testing.T) {
	t.Parallel()
	model := record(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/v1/messages") {
			event(w, `{"type":"message_start","message":{"usage":{"input_tokens":20,"output_tokens":1}}}`)
			event(w, `{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"Well."}}`)
			event(w, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"Yes."}}`)
			event(w, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}`)
			event(w, `{"type":"message_stop"}`)
			return
		}
		var asked struct {
			StreamOptions json.RawMessage `json:"stream_options"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		event(w, `{"choices":[{"index":0,"delta":{"reasoning_content":"Well."}}]}`)
		if asked.StreamOptions == nil {
			chunk(w, "Yes.", "stop", -1, -1)
		} else {
			chunk(w, "Yes.", "stop", 20, 7)
		}
		done(w)
	})
	proxy := record(t, func(w http.ResponseWriter, _ *http.Request) { chunk(w, "I have read it.", "stop", 20, 7); done(w) })
	d := startDevWith(t, vendorsConfig(t, fmt.Sprintf(`
  azure: {kind: openai, base_url: "%[1]s/openai/deployments/d?api-version=2024-10-21", api_key: {env: E2E_KEY}, key_header: api-key}
  plain: {kind: openai, base_url: "%[1]s/v1", api_key: {env: E2E_KEY}, headers: {X-Title: My fine app}, stream_options: false}
  claude: {kind: anthropic, base_url: "%[1]s", api_key: {env: E2E_KEY}, headers: {anthropic-beta: fine-beta}}
  away: {kind: openai, base_url: "http://model.invalid/v1"}`, model.url), `
  azure: {provider: azure, id: d, max_tokens_field: max_completion_tokens, PRICE, extra: {reasoning_effort: low, reasoning: {exclude: false, steps: [1, 2.5]}}}
  plain: {provider: plain, id: p, max_tokens_field: max_tokens, PRICE}
  claude: {provider: claude, id: c, PRICE, extra: {thinking: {type: enabled, budget_tokens: 50}}}
  away: {provider: away, id: a, max_tokens_field: max_tokens, PRICE}`),
		"E2E_KEY=secret-key", "HTTP_PROXY="+proxy.url, "http_proxy="+proxy.url, "HTTPS_PROXY="+proxy.url)
	token := d.token(t, "anna")
	const worst = 1000 // micro-dollars
	for _, row := range []struct {
		feature, uri string
		heads        map[string]string
		body         string // beside the messages
		cost         int64
		says         string
	}{
		{"azure", "/openai/deployments/d/chat/completions?api-version=2024-10-21", map[string]string{"Api-Key": "secret-key", "Authorization": ""},
			`{"max_completion_tokens":100,"model":"d","reasoning":{"exclude":false,"steps":[1,2.5]},"reasoning_effort":"low","stream":true,"stream_options":{"include_usage":true}}`, 70, `"reasoning_content":"Well."`},
		{"plain", "/v1/chat/completions", map[string]string{"X-Title": "My fine app", "Authorization": "Bearer secret-key", "Api-Key": ""},
			`{"max_tokens":100,"model":"p","stream":true}`, worst, "Yes."},
		{"claude", "/v1/messages", map[string]string{"Anthropic-Beta": "fine-beta", "X-Api-Key": "secret-key"},
			`{"max_tokens":100,"model":"c","stream":true,"thinking":{"budget_tokens":50,"type":"enabled"}}`, 70, `"reasoning_content":"Well."`},
	} {
		before := d.spent(t)
		a, err := d.ask(t.Context(), token, question{feature: row.feature, text: "Is it?", most: 100})
		check.Must(t, err == nil && a.status == http.StatusOK && strings.Contains(a.body, row.says), "%s: %v %d %s", row.feature, err, a.status, a.body)
		uri, head, body := model.last()
		delete(body, "messages")
		if got, err := json.Marshal(body); err != nil || string(got) != row.body || uri != row.uri {
			t.Errorf("%s: %s was sent to %s, want %s to %s", row.feature, got, uri, row.body, row.uri)
		}
		for name, want := range row.heads {
			check.Equal(t, head.Get(name), want, "%s: %s is", row.feature, name)
		}
		cost := d.spent(t) - before
		check.That(t, cost == row.cost, "%s: the ledger has %d micro-dollars, want %d", row.feature, cost, row.cost)
	}
	a, err := d.ask(t.Context(), token, question{feature: "plain", text: "Is it?", most: 100, stream: true})
	if _, rest, ok := strings.Cut(a.body, `"delta":{"reasoning_content":"Well."}`); err != nil || !ok || !strings.Contains(rest, `"delta":{"content":"Yes."}`) {
		t.Errorf("streamed: %v %s", err, a.body)
	}
	a, err = d.ask(t.Context(), token, question{feature: "away", text: "Is it?", most: 100})
	if uri, _, _ := proxy.last(); err != nil || a.status != http.StatusBadGateway || uri != "" {
		t.Errorf("away: %v %d %s; the proxy has %q", err, a.status, a.body, uri)
	}
	for _, quiet := range []string{"secret-key", "My fine app", "fine-beta"} {
		check.That(t, !strings.Contains(d.output(), quiet), "dev tells %q", quiet)
	}
}

// What is wrong with a request by the word of its provider is told to the caller as such,
// and takes nothing.
func TestRefusedByTheProvider(t *testing.T) {
	t.Parallel()
	model := record(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		switch {
		case strings.HasPrefix(r.URL.Path, "/claude/"):
			fmt.Fprint(w, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`)
		case strings.HasPrefix(r.URL.Path, "/odd/"):
			fmt.Fprint(w, `{"error":{"message":"odd","code":"odd"}}`)
		default:
			fmt.Fprint(w, `{"error":{"message":"The prompt was filtered","param":"prompt","code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}`)
		}
	})
	d := startDevWith(t, vendorsConfig(t, fmt.Sprintf(`
  fair:   {kind: openai, base_url: "%[1]s/fair", bills_errors: false}
  bills:  {kind: openai, base_url: "%[1]s/bills", bills_errors: true}
  odd:    {kind: openai, base_url: "%[1]s/odd", bills_errors: false}
  claude: {kind: anthropic, base_url: "%[1]s/claude", api_key: {env: E2E_KEY}, bills_errors: false}`, model.url), `
  fair: {provider: fair, id: m, max_tokens_field: max_tokens, PRICE}
  bills: {provider: bills, id: m, max_tokens_field: max_tokens, PRICE}
  odd: {provider: odd, id: m, max_tokens_field: max_tokens, PRICE}
  claude: {provider: claude, id: m, PRICE}`), "E2E_KEY=key")
	for _, row := range []struct {
		feature string
		status  int
		code    string
		cost    int64 // micro-dollars
	}{
		{"fair", 400, "content_filter", 0},
		{"bills", 400, "content_filter", 1000},
		{"claude", 400, "context_length_exceeded", 0},
		{"odd", 502, "provider_error", 0},
	} {
		for _, stream := range []bool{false, true} {
			user := fmt.Sprintf("%s-%t", row.feature, stream)
			token, before := d.token(t, user), d.spent(t)
			a, err := d.ask(t.Context(), token, question{feature: row.feature, text: "Is it?", most: 100, stream: stream})
			check.That(t, err == nil && a.status == row.status && strings.Contains(a.body, `"code":"`+row.code+`"`) && a.header.Get("X-Should-Retry") == "false",
				"%s: %v %d %s", user, err, a.status, a.body)
			left := d.left(t, user)
			if cost := d.spent(t) - before; cost != row.cost || left[row.feature] != 3 || left["tokens"] != 1_000_000 {
				t.Errorf("%s: it cost %d micro-dollars, want %d; %v are left", user, cost, row.cost, left)
			}
		}
	}
}

// Anthropic's answers are read however they are dressed, and are over when they have ended.
func TestAnthropicDressedUp(t *testing.T) {
	t.Parallel()
	model := record(t, func(w http.ResponseWriter, r *http.Request) {
		plain := func(data string) { // a label that is wrong
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "data: %s\n\n", data)
			_ = http.NewResponseController(w).Flush()
		}
		plain(`{"type":"message_start","message":{"usage":{"input_tokens":20,"output_tokens":1}}}`)
		plain(`{"type":"ping"}`)
		plain(`{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"hidden"}}`)
		plain(`{"type":"content_block_start","content_block":{"type":"new_block","text":"hidden"}}`)
		plain(`{"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":[{"type":"text","text":"Yes."}]}}`)
		switch {
		case strings.HasPrefix(r.URL.Path, "/overloaded/"):
			plain(`{"type":"error","error":{"type":"overloaded_error","message":"hidden"},"usage":{"output_tokens":7}}`)
		case strings.HasPrefix(r.URL.Path, "/alone/"):
			plain(`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`)
			<-r.Context().Done()
		default:
			plain(`{"type":"message_delta","delta":{"stop_reason":"MAX_TOKENS","usage":{"output_tokens":7}}}`)
			<-r.Context().Done() // without message_stop, and with the connection open
		}
	})
	d := startDevWith(t, vendorsConfig(t, fmt.Sprintf(`
  ends:       {kind: anthropic, base_url: "%[1]s/ends", api_key: {env: E2E_KEY}}
  alone:      {kind: anthropic, base_url: "%[1]s/alone", api_key: {env: E2E_KEY}}
  overloaded: {kind: anthropic, base_url: "%[1]s/overloaded", api_key: {env: E2E_KEY}}`, model.url), `
  ends: {provider: ends, id: m, PRICE}
  alone: {provider: alone, id: m, PRICE}
  overloaded: {provider: overloaded, id: m, PRICE}`), "E2E_KEY=key")
	for _, row := range []struct {
		feature string
		status  int
		says    string
		cost    int64 // micro-dollars
		quota   int
	}{
		{"ends", 200, `"finish_reason":"length"`, 70, 1},
		{"alone", 200, `"finish_reason":"stop"`, 1000, 1},
		{"overloaded", 502, `"code":"provider_error"`, 70, 0},
	} {
		token, before := d.token(t, row.feature), d.spent(t)
		a, err := d.ask(t.Context(), token, question{feature: row.feature, text: "Is it?", most: 100})
		check.That(t, err == nil && a.status == row.status && strings.Contains(a.body, row.says) && !strings.Contains(a.body, "hidden") && (row.status == 200) == strings.Contains(a.body, "Yes."),
			"%s: %v %d %s", row.feature, err, a.status, a.body)
		if cost, left := d.spent(t)-before, d.left(t, row.feature)[row.feature]; cost != row.cost || 3-left != row.quota {
			t.Errorf("%s: it cost %d micro-dollars, want %d; %d answers are left", row.feature, cost, row.cost, left)
		}
	}
}
