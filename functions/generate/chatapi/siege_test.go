package chatapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/exposure"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// siegePolicy has figures that a few thousand calls reach. A call of a user costs
// $0.0041 at most, one of an anonymous caller $0.0016.
const siegePolicy = `
providers:
  main: {kind: openai, base_url: "UPSTREAM", timeout: 400ms}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, context: 4000, max_tokens_field: max_completion_tokens,
          price_per_mtok: {input: "1.00", cached_input: "0.10", cache_write: "1.25", output: "10.00"}}
features:
  ask: {model: small, max_output_tokens: 400}
tiers:
  anonymous: {max_input_tokens: 500, max_output_tokens: 100, max_in_flight: 8,
              limits: {tokens: {capacity: 6000, per: 1h}, requests: {capacity: 12, per: 10m}}, pool: anonymous,
              network: {tokens: {capacity: 12000, per: 1h}, requests: {capacity: 30, per: 10m}, max_in_flight: 16}}
  user:      {max_input_tokens: 1000, max_output_tokens: 200, max_in_flight: 16,
              limits: {tokens: {capacity: 30000, per: 1h}, requests: {capacity: 200, per: 1h}, spend: {usd: "0.10", per: 2h}}}
  pro:       {max_input_tokens: 1000, max_output_tokens: 300, max_in_flight: 16,
              limits: {tokens: {capacity: 300000, per: 1h}, requests: {capacity: 60, per: 30m}}}
pools: {anonymous: {usd: "0.40", per: 1h}, all: {usd: "1.60", per: 1h}}
auth: {issuer: "ISSUER", audience: "test", jwks_url: "ISSUER/dev/jwks.json", plan_claim: plan}
fingerprint: {secret: {env: TEST_SECRET}}
`

// bill is what the besieging provider charged.
type siegeBill struct {
	at     time.Time // by the handlers' clock
	tier   string
	who    string // an identity, or a client and its network
	amount price.Pico
}

// besieged is a rig whose provider bills each call's worst case, whatever it answers, and
// remembers for whom.
type besieged struct {
	*rig
	tokenizer *tokens.Tokenizer
	prices    price.Table

	mu      sync.Mutex
	random  *rand.Rand
	bills   []siegeBill
	answers map[string]int // how often it answered in which way
	leave   map[string]context.CancelFunc
}

// siegeAnswers are the ways in which the provider answers. It bills the worst case
// for each of them, but for those that cannot have been processed.
var siegeAnswers = []struct {
	name string
	free bool
	give func(s *besieged, w http.ResponseWriter, r *http.Request, c siegeCall)
}{
	{"a true report", false, func(s *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "Yes.", "stop", c.usage(c.input, c.output))
		fmt.Fprint(w, "data: [DONE]\n\n")
	}},
	{"status 400", false, status(400)},
	{"status 500", false, status(500)},
	{"status 408", false, status(408)},
	{"status 499", false, status(499)},
	{"status 504", false, status(504)},
	{"status 524", false, status(524)},
	{"status 429", true, status(429)},
	{"status 503", true, status(503)},
	{"status 401", true, status(401)},
	{"no report", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "Yes.", "stop", "")
		fmt.Fprint(w, "data: [DONE]\n\n")
	}},
	{"cut", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "Ye", "", "")
		panic(http.ErrAbortHandler)
	}},
	{"nothing at all", false, func(_ *besieged, _ http.ResponseWriter, _ *http.Request, _ siegeCall) { panic(http.ErrAbortHandler) }},
	{"a report, then garbage", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "Yes.", "stop", c.usage(c.input, c.output))
		fmt.Fprint(w, "data: {{{\n\n")
	}},
	{"usage that no model can have", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "Yes.", "stop", c.usage(1<<62, 1<<62))
		fmt.Fprint(w, "data: [DONE]\n\n")
	}},
	{"negative usage", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "Yes.", "stop", c.usage(-5, -5))
		fmt.Fprint(w, "data: [DONE]\n\n")
	}},
	{"a cap that is ignored", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		for range 40 {
			c.stream(w, strings.Repeat("word ", int(c.output)/10), "", "")
		}
	}},
	{"nothing but reasoning", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "", "length", c.usage(c.input, c.output))
		fmt.Fprint(w, "data: [DONE]\n\n")
	}},
	{"an error inside", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "Ye", "", "")
		fmt.Fprint(w, "data: {\"error\":{\"message\":\"no\",\"code\":\"server_error\"}}\n\n")
	}},
	{"a finish that means failure", false, func(_ *besieged, w http.ResponseWriter, _ *http.Request, c siegeCall) {
		c.stream(w, "Ye", "error", "")
		fmt.Fprint(w, "data: [DONE]\n\n")
	}},
	{"silence until the caller leaves", false, func(s *besieged, _ http.ResponseWriter, r *http.Request, c siegeCall) {
		s.left(c)
		<-r.Context().Done()
	}},
	{"half an answer until the caller leaves", false, func(s *besieged, w http.ResponseWriter, r *http.Request, c siegeCall) {
		c.stream(w, "Ye", "", "")
		s.left(c)
		<-r.Context().Done()
	}},
	{"silence until the time is up", false, func(_ *besieged, _ http.ResponseWriter, r *http.Request, _ siegeCall) { <-r.Context().Done() }},
}

func status(code int) func(*besieged, http.ResponseWriter, *http.Request, siegeCall) {
	return func(_ *besieged, w http.ResponseWriter, _ *http.Request, _ siegeCall) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, `{"error":{"message":"no","type":"server_error","code":null}}`)
	}
}

// siegeCall is a call as the provider gets it.
type siegeCall struct {
	number        string
	tier, who     string
	input, output int64
}

func (c siegeCall) usage(input, output int64) string {
	return fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cache_write_tokens":%[1]d}}`, input, output, input+output)
}

// stream sends one chunk, and begins the stream with it.
func (c siegeCall) stream(w http.ResponseWriter, text, finish, usage string) {
	w.Header().Set("Content-Type", "text/event-stream")
	reason := "null"
	if finish != "" {
		reason = fmt.Sprintf("%q", finish)
	}
	fmt.Fprintf(w, `data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}]%s}`+"\n\n", text, reason, usage)
	_ = http.NewResponseController(w).Flush()
}

var siegeMark = regexp.MustCompile(`<([a-z]+) ([^ ]+) ([0-9]+)>`)

// ServeHTTP bills a call and answers it in some way.
func (s *besieged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var req struct {
		Messages []struct{ Content string }
		Most     int64 `json:"max_completion_tokens"`
	}
	if err := json.Unmarshal(body, &req); err != nil || len(req.Messages) == 0 {
		s.t.Errorf("the provider got %q: %v", body, err)
		panic(http.ErrAbortHandler)
	}
	c := siegeCall{input: int64(s.tokenizer.PerReply()), output: req.Most}
	for _, m := range req.Messages {
		c.input += int64(s.tokenizer.PerMessage() + s.tokenizer.Count(m.Content))
	}
	mark := siegeMark.FindStringSubmatch(req.Messages[len(req.Messages)-1].Content)
	if mark == nil {
		s.t.Errorf("whose call is %q", body)
		panic(http.ErrAbortHandler)
	}
	c.tier, c.who, c.number = mark[1], mark[2], mark[3]

	s.mu.Lock()
	// Silence until the time is up takes real time: seldom.
	kind := siegeAnswers[s.random.IntN(len(siegeAnswers))]
	if kind.name == "silence until the time is up" && s.random.IntN(6) > 0 {
		kind = siegeAnswers[0]
	}
	s.answers[kind.name]++
	if !kind.free {
		s.bills = append(s.bills, siegeBill{s.now(), c.tier, c.who, s.prices.WorstCase(c.input, c.output)})
	}
	s.mu.Unlock()
	kind.give(s, w, r, c)
}

// left makes the caller of a call leave.
func (s *besieged) left(c siegeCall) {
	s.mu.Lock()
	leave := s.leave[c.number]
	s.mu.Unlock()
	leave()
}

// Whatever prompts, times and numbers of calls at a time its callers choose, whenever
// they leave, and whatever the provider answers while it bills each call's worst
// case: in no hour does an identity or a pool cost more than exposure prints.
func TestSiege(t *testing.T) {
	s := &besieged{random: rand.New(rand.NewPCG(3, 4)), answers: map[string]int{}, leave: map[string]context.CancelFunc{}}
	var err error
	if s.tokenizer, err = tokens.New("o200k_base"); err != nil {
		t.Fatal(err)
	}
	var fake http.Handler = s
	s.rig = setup{model: func(http.Handler) http.Handler { return fake }}.newRig(t, func(yaml string) string {
		from := func(key string) string { return strings.SplitN(strings.SplitN(yaml, key+": \"", 2)[1], "\"", 2)[0] }
		return strings.NewReplacer("UPSTREAM", from("base_url"), "ISSUER", from("issuer")).Replace(siegePolicy)
	})
	s.prices = s.policy.Models["small"].Prices
	s.freeze(0)
	processes := []*Handler{s.handler}
	for range 3 {
		processes = append(processes, s.process(engine.Client(enginetest.URL())))
	}
	for _, h := range processes {
		h.Log = slog.New(slog.DiscardHandler)
	}
	tokens := map[string]string{"user#mallory": s.token("mallory", ""), "user#trudy": s.token("trudy", "pro"), "user#eve": s.token("eve", "pro")}

	// One caller of each kind that exposure knows; of anonymous ones several
	// browsers of a network, and several networks.
	type caller struct{ tier, who, token, address, agent string }
	var callers []caller
	for who, token := range tokens {
		callers = append(callers, caller{tier: map[bool]string{true: "user", false: "pro"}[who == "user#mallory"], who: who, token: token})
	}
	for network := range 4 {
		for client := range 4 {
			callers = append(callers, caller{tier: "anonymous", who: fmt.Sprintf("net%d/%d", network, client),
				address: fmt.Sprintf("203.0.%d.7:4711", 100+network), agent: fmt.Sprintf("agent %d", client)})
		}
	}
	slices.SortFunc(callers, func(a, b caller) int { return strings.Compare(a.who, b.who) })
	start, calls := s.now(), 0
	random := rand.New(rand.NewPCG(5, 6))
	for s.now().Sub(start) < 150*time.Minute {
		var together sync.WaitGroup
		for i, c := range callers {
			for range random.IntN(4) {
				calls++
				number := fmt.Sprint(calls)
				ctx, cancel := context.WithCancel(t.Context())
				s.mu.Lock()
				s.leave[number] = cancel
				s.mu.Unlock()
				text := fmt.Sprintf("<%s %s %s> %s", c.tier, c.who, number, strings.Repeat("all ", []int{0, 450, 900, 900}[random.IntN(4)]))
				if c.tier == "anonymous" && len(text) > 1700 { // cut from its end: the mark stays
					text = text[:1700]
				}
				body, _ := json.Marshal(map[string]any{"model": "ask", "stream": random.IntN(2) == 0,
					"messages": []map[string]string{{"role": "user", "content": text}}})
				r := s.request(http.MethodPost, "/v1/chat/completions", c.token, string(body)).WithContext(ctx)
				if c.address != "" {
					r.RemoteAddr = c.address
					r.Header.Set("User-Agent", c.agent)
				}
				h := processes[(i+calls)%len(processes)]
				together.Go(func() {
					defer cancel()
					h.ServeHTTP(httptest.NewRecorder(), r)
				})
			}
		}
		together.Wait()
		s.freeze([]time.Duration{5 * time.Second, 40 * time.Second, 2 * time.Minute}[random.IntN(3)])
	}

	// A provider whose caller has left may still be at work.
	s.mu.Lock()
	defer s.mu.Unlock()
	report := exposure.Of(s.policy)
	bound := func(who exposure.Who, tier string) price.Pico {
		for _, l := range report.Lines {
			if l.Who == who && l.Tier == tier && l.Feature == "" {
				return price.Pico(l.With)
			}
		}
		t.Fatalf("exposure has no line of %s %s", who, tier)
		return 0
	}
	hold := func(what string, most price.Pico, strong bool, mine func(siegeBill) bool) {
		t.Helper()
		worst, first := price.Pico(0), 0
		var window []siegeBill
		for _, b := range s.bills { // in the order of their times
			if mine(b) {
				window = append(window, b)
			}
		}
		sum := price.Pico(0)
		for _, b := range window {
			for sum += b.amount; b.at.Sub(window[first].at) >= time.Hour; first++ {
				sum -= window[first].amount
			}
			worst = max(worst, sum)
		}
		t.Logf("%-14s at most $%s an hour of $%s", what, worst, most)
		check.That(t, worst <= most, "%s: $%s were billed in an hour, exposure says at most $%s", what, worst, most)
		check.That(t, !strong || worst >= most/4, "%s: only $%s of $%s were billed in an hour: a weak siege", what, worst, most)
	}
	slices.SortStableFunc(s.bills, func(a, b siegeBill) int { return a.at.Compare(b.at) })
	for _, c := range callers {
		if c.tier == "anonymous" {
			hold(c.who, bound(exposure.Client, "anonymous"), false, func(b siegeBill) bool { return b.who == c.who })
			continue
		}
		hold(c.who, bound(exposure.OneUser, c.tier), true, func(b siegeBill) bool { return b.who == c.who })
	}
	for network := range 4 {
		prefix := fmt.Sprintf("net%d/", network)
		hold(prefix, bound(exposure.Network, "anonymous"), false, func(b siegeBill) bool { return strings.HasPrefix(b.who, prefix) })
	}
	hold("pool anonymous", bound(exposure.AllAnonymous, "anonymous"), true, func(b siegeBill) bool { return b.tier == "anonymous" })
	hold("pool all", price.Pico(report.Everybody), false, func(siegeBill) bool { return true })
	if p := s.policy.Pools[policy.PoolAll]; price.Pico(report.Everybody) != p.Ceiling {
		t.Errorf("exposure says $%s for everybody, the ceiling is $%s", price.Pico(report.Everybody), p.Ceiling)
	}
	for _, kind := range siegeAnswers {
		check.That(t, s.answers[kind.name] >= 5, "the provider answered only %d times with %s", s.answers[kind.name], kind.name)
	}
	t.Logf("%d calls, %d billed", calls, len(s.bills))
}
