package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// till is a model provider that keeps account of what it is owed at most: the
// worst case of the calls that are open, and the bill of those that have ended.
type till struct {
	url       string
	model     *upstream.Upstream
	tokenizer *tokens.Tokenizer
	prices    price.Table

	mu                 sync.Mutex
	open, billed, most price.Pico
	calls              int
}

func newTill(t *testing.T, prices price.Table) *till {
	t.Helper()
	tokenizer, err := tokens.New("o200k_base")
	check.OK(t, err)
	// Slow enough that many calls are open at a time.
	m := &till{model: upstream.New(upstream.Options{FirstToken: 30 * time.Millisecond}), tokenizer: tokenizer, prices: prices}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL + "/v1"
	return m
}

func (m *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		Messages []struct{ Content string }
		Most     int64 `json:"max_completion_tokens"`
	}
	if err != nil || json.Unmarshal(body, &asked) != nil || asked.Most < 1 {
		http.Error(w, "no request of ours", http.StatusBadRequest)
		return
	}
	input := m.tokenizer.PerReply()
	for _, message := range asked.Messages {
		input += m.tokenizer.PerMessage() + m.tokenizer.Count(message.Content)
	}
	worst := m.prices.WorstCase(int64(input), asked.Most)
	m.account(worst, 0)

	reply := httptest.NewRecorder()
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.model.ServeHTTP(reply, r)
	c, err := answer{reply.Code, reply.Header(), reply.Body.String()}.completion()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// Before the answer goes out, upon which tokenfuse settles: this is never more
	// than what tokenfuse must take for committed.
	m.account(-worst, c.cost(m.prices))
	maps.Copy(w.Header(), reply.Header())
	w.WriteHeader(reply.Code)
	_, _ = w.Write(reply.Body.Bytes())
}

func (m *till) account(open, billed price.Pico) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open += open
	m.billed += billed
	m.most = max(m.most, m.open+m.billed)
	if open > 0 {
		m.calls++
	}
}

// cost is the price of an answer's usage.
func (c completion) cost(prices price.Table) price.Pico {
	return prices.Cost(price.Usage{Input: int64(c.Usage.Total - c.Usage.Output), Output: int64(c.Usage.Output)})
}

// storeBusy reports whether a call was not made since the engine, on a machine that
// has more to do, did not answer in time.
func storeBusy(a answer, c completion) bool {
	return a.status == http.StatusServiceUnavailable && c.Error.Code == "store_unavailable" && a.header.Get("X-Should-Retry") == "true"
}

// Visitors who storm eight instances that share nothing in memory get what the
// pool's ceiling allows and not a cent more, by the provider's own account.
// Beyond it they are told honestly when to come back, and signed-in users, who
// draw on the larger pool alone, notice nothing.
func TestSpendCeiling(t *testing.T) {
	t.Parallel()
	const (
		ceiling = 24 * price.Dollar / 100
		// What may go at once, and what is refilled: all that an hour, the life of a
		// lease and a margin let through is the ceiling.
		burst   = ceiling / 4
		perHour = (ceiling - burst) * 3600 / (3600 + 60 + 5)
	)
	prices := price.Table{Rates: price.Rates{Input: 400_000, CachedInput: 400_000, CacheWrite: 400_000, Output: 1_600_000}}
	worst := prices.WorstCase(25, 100)
	visitors, users := newTill(t, prices), newTill(t, prices)
	d := startDev(t, writeConfig(t, fmt.Sprintf(`
providers: {visitors: {kind: openai, base_url: %q, bills_errors: false}, users: {kind: openai, base_url: %q}}
models:
  visitors: {provider: visitors, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "0.40", output: "1.60"}}
  users:    {provider: users, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "0.40", output: "1.60"}}
features:
  ask:  {model: visitors, max_output_tokens: 100, tiers: [anonymous]}
  more: {model: users, max_output_tokens: 100, tiers: [user]}
tiers:
  anonymous: {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 1000, limits: {tokens: {capacity: 100000, per: 1h}},
              network: {tokens: {capacity: 1000000, per: 1h}, max_in_flight: 1000}, pool: anonymous}
  user:      {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 1000, limits: {tokens: {capacity: 10000000, per: 1h}}}
pools: {anonymous: {usd: "0.24", per: 1h}, all: {usd: "24.00", per: 1h}}
fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}
`, visitors.url, users.url)), "--instances", "8")

	start := time.Now()
	var mu sync.Mutex
	var told price.Pico // by the answers
	denied, unavailable := 0, 0
	take := func(a answer) (refused bool) {
		c, err := a.completion()
		if err != nil {
			t.Errorf("%v: %s", err, a.body)
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case a.status == http.StatusOK && c.done && c.Usage.Total > 0:
			told += c.cost(prices)
		case a.status == http.StatusBadGateway && c.Error.Code == "provider_error":
		case storeBusy(a, c):
			unavailable++
		case a.status == http.StatusServiceUnavailable && c.Error.Code == "spend_ceiling_reached":
			denied++
			// At most until the dearest call is refilled; a second begun counts whole.
			longest := int(worst*3600/perHour) + 1
			if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait != c.Error.RetryAfter || wait < 1 || wait > longest {
				t.Errorf("Retry-After %q, want at most %d s: %s", a.header.Get("Retry-After"), longest, a.body)
			}
			check.That(t, c.Error.Type == "server_error" && a.header.Get("X-Should-Retry") == "false",
				"x-should-retry %q: %s", a.header.Get("X-Should-Retry"), a.body)
			return true
		default:
			t.Errorf("neither an answer nor the ceiling: %d %s", a.status, a.body)
			return true
		}
		return false
	}

	var storm, members sync.WaitGroup
	for i := range 64 {
		v := visitor{d: d, agent: fmt.Sprintf("Mozilla/5.0 (%d)", i)}
		storm.Go(func() {
			for n, refusals := i, 0; refusals < 3 && n < i+40; n++ {
				// Calls that use their worst case to the token, calls that give most of it
				// back, and some that fail.
				text := []string{"Go on. [[long]]", "What is a token bucket?", "Go on. [[long]]", "[[fail:500]]"}[n%4]
				a, err := v.ask(t.Context(), question{feature: "ask", text: text, most: 100, stream: n%3 == 0})
				if err != nil {
					t.Error(err)
					return
				}
				if take(a) {
					refusals++
				}
			}
		})
	}
	over := make(chan struct{})
	for i := range 4 {
		token := d.token(t, fmt.Sprint(i))
		members.Go(func() {
			for last := false; !last; {
				select {
				case <-over:
					last = true
				default:
				}
				a, err := d.ask(t.Context(), token, question{feature: "more", text: "Go on. [[long]]", most: 100})
				if err != nil {
					t.Error(err)
					return
				}
				if c, err := a.completion(); err != nil || a.status != http.StatusOK && !storeBusy(a, c) {
					t.Errorf("a user: %v: %d %s", err, a.status, a.body)
					return
				}
			}
		})
	}
	storm.Wait()
	took := time.Since(start)
	close(over)
	members.Wait()

	bound := burst + perHour*price.Pico(took)/price.Pico(time.Hour)
	t.Logf("most committed $%s, most allowed $%s: a quarter of the hour's $%s at once, and the refill of %s",
		visitors.most, bound, ceiling, took.Round(time.Millisecond))
	t.Logf("$%s billed for %d calls, %d denied, %d not admitted by a busy store; meanwhile %d calls of users for $%s",
		visitors.billed, visitors.calls, denied, unavailable, users.calls, users.billed)
	check.That(t, visitors.most <= bound, "more was committed than is allowed")
	check.Equal(t, told, visitors.billed, "the answers tell of $")
	// Eight instances may each keep a little of what they have drawn, and what the
	// store does not acknowledge counts as spent.
	check.That(t, unavailable != 0 || visitors.billed >= burst*3/4, "only $%s were billed of the $%s that may go at once", visitors.billed, burst)
	check.That(t, users.calls >= 8, "%d calls of users", users.calls)

	// Whoever comes back when told to is served. Of the storm's denials, instances repeat some
	// for a second, and do not know what others have drawn since.
	time.Sleep(time.Second)
	v, q := visitor{d: d, agent: "Mozilla/5.0 (patient)"}, question{feature: "ask", text: "Go on. [[long]]", most: 100}
	a := v.mustAsk(t, q)
	for ; !take(a); a = v.mustAsk(t, q) {
	}
	c, err := a.completion()
	check.Must(t, err == nil && c.Error != nil, "%v: %s", err, a.body)
	time.Sleep(time.Duration(c.Error.RetryAfter) * time.Second)
	if a := v.mustAsk(t, q); a.status != http.StatusOK {
		t.Errorf("after the wait of %d s: %d %s", c.Error.RetryAfter, a.status, a.body)
	}
}
