package chatapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// scripted is a provider that gives some parts and then err.
type scripted struct {
	parts []provider.Part
	err   error // nil: the answer ends well
}

func (s scripted) Call(context.Context, provider.Request) (provider.Answer, error) {
	if len(s.parts) == 0 && s.err != nil {
		return nil, s.err
	}
	return &scriptedAnswer{scripted: s}, nil
}

type scriptedAnswer struct {
	scripted
	closed bool
}

func (s *scriptedAnswer) Next() (provider.Part, error) {
	if len(s.parts) == 0 {
		if s.err == nil {
			return provider.Part{}, io.EOF
		}
		return provider.Part{}, s.err
	}
	p := s.parts[0]
	s.parts = s.parts[1:]
	return p, nil
}

func (s *scriptedAnswer) Close() error {
	s.closed = true
	return nil
}

// withPool gives all callers a pool whose refill does not count in a test: $0.40 in
// ten days.
func withPool(yaml string) string { return yaml + "pools: {all: {usd: \"0.40\", per: 240h}}\n" }

// committed is what a pool has committed, by the store.
func (g *rig) committed(pool string) price.Pico {
	g.t.Helper()
	share, err := g.handler.admission.Pools[pool].Refresh(context.Background())
	check.OK(g.t, err)
	return price.Pico(math.Round(share * float64(g.handler.admission.Pools[pool].Burst())))
}

// wantCommitted asserts it, to what refills in the margin that a pool leaves for
// clocks.
func (g *rig) wantCommitted(want price.Pico) {
	g.t.Helper()
	if got, margin := g.committed("all"), 3*price.MicroDollar; got < want-price.MicroDollar/10 || got > max(want, margin) {
		g.t.Errorf("the pool has committed $%s, want $%s", got, want)
	}
}

func text(s string) provider.Part                 { return provider.Part{Content: s} }
func reported(u price.Usage) provider.Part        { return provider.Part{Usage: &u} }
func finished(reason string) provider.Part        { return provider.Part{FinishReason: reason} }
func failed(f provider.Failure, status int) error { return &provider.Error{Failure: f, Status: status} }

// What a provider says and does, by the money: what the caller's limits, the ledger
// and the pool have of it, and what the caller is told.
func TestClaims(t *testing.T) {
	t.Parallel()
	const (
		seen     = 2 // "Hello there"
		context  = 1_000_000
		noReport = "the provider reported no usage that can be true"
		tooMuch  = "more usage than the model's context holds"
	)
	hello := text("Hello there")
	billed := price.Usage{Input: 20, Output: 7}
	for _, tt := range []struct {
		name  string
		from  scripted
		way   string
		code  openai.Code
		up    int         // upstream_status
		whole openai.Code // if not streamed, where that differs

		// The usage that counts against the caller's tokens. Input 0: as we count it, if
		// there is any output.
		tokens price.Usage
		quota  int64
		// What the ledger, the caller's dollars and the pool have: nil is the worst case.
		ledger    *price.Usage
		estimated bool
		outcome   ledger.Outcome

		logged string // by the handler, beside the usual
		says   []string
	}{
		{name: "an error status that may be billed", from: scripted{err: failed(provider.Broken, 408)}, code: openai.ProviderError, up: 408,
			outcome: ledger.Failed, says: []string{"Counted: $WORST of your spending limit (the most that the call can have cost). Nothing was taken from your quota."}},
		{name: "out of time, with nothing seen", from: scripted{err: failed(provider.Timeout, 0)}, code: openai.ProviderTimeout,
			outcome: ledger.Failed, says: []string{"Counted: $WORST of your spending limit", "Nothing was taken from your quota."}},
		{name: "out of time, with some text", from: scripted{[]provider.Part{hello}, failed(provider.Timeout, 0)}, code: inStream + openai.ProviderTimeout, whole: openai.ProviderTimeout,
			tokens: price.Usage{Output: seen}, outcome: ledger.Failed,
			says: []string{"Counted: TOKENS tokens and $WORST of your spending limit", "Nothing was taken from your quota."}},
		{name: "usage and text, no finish_reason", from: scripted{[]provider.Part{hello, reported(billed)}, failed(provider.Broken, 200)},
			code: inStream + openai.ProviderError, up: 200, whole: openai.ProviderError, tokens: billed, ledger: &billed, outcome: ledger.Failed,
			says: []string{"Counted: 27 tokens and $0.0000192 of your spending limit. Nothing was taken from your quota."}},
		{name: "a failure with a report and no text", from: scripted{[]provider.Part{reported(billed)}, failed(provider.Broken, 200)},
			code: openai.ProviderError, up: 200, tokens: billed, ledger: &billed, outcome: ledger.Failed,
			says: []string{"Counted: 27 tokens and $0.0000192 of your spending limit. Nothing was taken from your quota."}},
		{name: "a failure without a report and text", from: scripted{[]provider.Part{}, failed(provider.Broken, 200)},
			code: openai.ProviderError, up: 200, outcome: ledger.Failed, says: []string{"Counted: $WORST", "Nothing was taken from your quota."}},
		{name: "never sent", from: scripted{err: failed(provider.Unreachable, 0)}, code: openai.ProviderError, says: []string{"Nothing was taken from your quota. Try again later."}},

		{name: "a report of less than was seen", from: scripted{[]provider.Part{text(strings.Repeat("word ", 50)), finished("stop"), reported(billed)}, nil},
			tokens: billed, quota: 1, ledger: &price.Usage{Input: 20, Output: 51}, estimated: true, outcome: ledger.Completed, logged: "reported less output than it sent"},
		{name: "a report of more than was reserved", from: scripted{[]provider.Part{hello, finished("stop"), reported(price.Usage{Input: 9000, Output: 700})}, nil},
			tokens: price.Usage{Input: 9000, Output: 700}, quota: 1, ledger: &price.Usage{Input: 9000, Output: 700}, outcome: ledger.Completed, logged: "more than was reserved"},
		{name: "a report of all that the context holds", from: scripted{[]provider.Part{hello, finished("stop"), reported(price.Usage{Input: context - 7, Output: 7})}, nil},
			tokens: price.Usage{Input: context - 7, Output: 7}, quota: 1, ledger: &price.Usage{Input: context - 7, Output: 7}, outcome: ledger.Completed, logged: "more than was reserved"},
		{name: "a report of one more", from: scripted{[]provider.Part{hello, finished("stop"), reported(price.Usage{Input: context - 6, Output: 7})}, nil},
			tokens: price.Usage{Output: seen}, quota: 1, outcome: ledger.Completed, logged: tooMuch},
		{name: "no report", from: scripted{[]provider.Part{hello, finished("stop")}, nil},
			tokens: price.Usage{Output: seen}, quota: 1, outcome: ledger.Completed, logged: noReport},

		{name: "reasoning ate the cap", from: scripted{[]provider.Part{finished("length"), reported(price.Usage{Input: 18, Output: 300, Reasoning: 300})}, nil},
			tokens: price.Usage{Input: 18, Output: 300}, ledger: &price.Usage{Input: 18, Output: 300, Reasoning: 300}, outcome: ledger.Completed,
			says: []string{`"finish_reason":"length"`, "used up the 300 tokens of its output for reasoning, before it gave any text. A larger max_tokens may help: at most 2000.",
				"Counted: 318 tokens and $0.0004872 of your spending limit. Nothing was taken from your quota."}},
		{name: "nothing but reasoning and blanks", from: scripted{[]provider.Part{{Reasoning: "Hm."}, text("\n\n"), finished("length"), reported(price.Usage{Input: 18, Output: 300})}, nil},
			tokens: price.Usage{Input: 18, Output: 300}, ledger: &price.Usage{Input: 18, Output: 300}, outcome: ledger.Completed,
			says: []string{"for reasoning, before it gave any text", "Nothing was taken from your quota."}},
		{name: "a report that leaves reasoning out", from: scripted{[]provider.Part{{Reasoning: strings.Repeat("word ", 50)}, hello, finished("stop"), reported(billed)}, nil},
			tokens: billed, quota: 1, ledger: &price.Usage{Input: 20, Output: 51 + seen}, estimated: true, outcome: ledger.Completed, logged: "reported less output than it sent"},
		{name: "no text at all", from: scripted{[]provider.Part{finished("stop"), reported(price.Usage{Input: 20, Output: 1})}, nil},
			tokens: price.Usage{Input: 20, Output: 1}, ledger: &price.Usage{Input: 20, Output: 1}, outcome: ledger.Completed,
			says: []string{"The model gave no text. Counted: 21 tokens and $0.0000096 of your spending limit. Nothing was taken from your quota."}},
		{name: "a refusal is an answer", from: scripted{[]provider.Part{{Refusal: "Hello there"}, finished("stop"), reported(billed)}, nil},
			tokens: billed, quota: 1, ledger: &billed, outcome: ledger.Completed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachWay(t, tt.way, func(t *testing.T, stream bool) {
				g := newRig(t, withPool)
				g.freeze(0)
				g.provide(tt.from)
				token := g.token("123", "")
				a := g.chat(token, cvCall("Hi.", stream))
				want := tt.code
				if !stream && tt.whole != "" {
					want = tt.whole
				}
				up := tt.up
				if strings.HasPrefix(string(want), string(inStream)) {
					up = 0
				}
				g.wantAnswer(a, stream, want, up)

				cost := testPrices.WorstCase(g.cvInput(), cvCap)
				e := spendEvent{Identity: "user#123", Tier: "user", Feature: "cv", Model: "small", Input: g.cvInput(), Output: cvCap,
					Cost: cost, Outcome: tt.outcome, Estimated: true}
				if l := tt.ledger; l != nil {
					cost = testPrices.Cost(*l)
					e.Input, e.Output, e.Reasoning, e.Cost, e.Estimated = l.Input, l.Output, l.Reasoning, cost, tt.estimated
				}
				events := g.spendEvents()
				switch {
				case tt.outcome == "":
					cost = 0
					check.That(t, len(events) == 0, "events of a call that was never made: %+v", events)
				case len(events) != 1:
					t.Fatalf("%d spend events: %+v", len(events), events)
				default:
					if e.Reservation = events[0].Reservation; events[0] != e {
						t.Errorf("the ledger has\n%+v, want\n%+v", events[0], e)
					}
				}
				tokens := tt.tokens // each way has its own
				if tokens.Input == 0 && tokens.Output > 0 {
					tokens.Input = g.cvInput()
				}
				g.wantLeftOf(token, tokens.Total(), cost, tt.quota)
				g.wantCommitted(cost)

				check.That(t, (tt.quota <= 0 || !strings.Contains(a.body, "Nothing was taken")) && (tt.quota <= 0 || !strings.Contains(a.body, "notice")),
					"of an answer it is said: %s", a.body)
				for _, say := range tt.says {
					say = strings.NewReplacer("WORST", cost.String(), "TOKENS", fmt.Sprint(tokens.Total())).Replace(say)
					check.That(t, strings.Contains(a.body, say), "it is not said that %q: %s", say, a.body)
				}
				for _, line := range []string{noReport, tooMuch, "reported less output", "more than was reserved"} {
					if got := strings.Contains(g.log.String(), line); got != (tt.logged != "" && strings.Contains(tt.logged, line) || line == noReport && tt.logged == tooMuch) {
						t.Errorf("%q in the log: %t", line, got)
					}
				}
			})
		})
	}
}

// wantLeftOf asserts what one call of user#123 to cv has left of their limits.
func (g *rig) wantLeftOf(token string, tokens int64, cost price.Pico, quota int64) {
	g.t.Helper()
	left := g.remaining(token)
	for limit, remain := range map[string]int64{
		"requests": 60 - 1,
		"tokens":   max(0, 50_000-tokens),
		"spend":    max(0, 2_000_000-cost.MicroDollars()),
		"cv":       3 - quota,
	} {
		check.Equal(g.t, left[limit], remain, "%s: remain", limit)
	}
	check.Equal(g.t, g.open("user#123"), 0, "calls are still open")
}

// endless is a server that knows no output cap: it sends a token of text again and
// again, in 320,000 events or in one piece, and says so in its usage.
func endless(unit string) func(http.Handler) http.Handler {
	const tokens = 320_000
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var req struct{ Stream bool }
			_ = json.NewDecoder(r.Body).Decode(&req)
			usage := fmt.Sprintf(`{"prompt_tokens":20,"completion_tokens":%d}`, tokens)
			quoted, _ := json.Marshal(unit)
			if !req.Stream {
				all, _ := json.Marshal(strings.Repeat(unit, tokens))
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}],"usage":%s}`, all, usage)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			for range tokens {
				if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s}}]}\n\n", quoted); err != nil {
					return
				}
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":%s}\n\ndata: [DONE]\n\n", usage)
		})
	}
}

// answered reads the text of an answer in either form.
func answered(t *testing.T, a answer, stream bool) (text, finish string) {
	t.Helper()
	pieces := []string{a.body}
	if stream {
		pieces = streamed(a.body)
	}
	for _, piece := range pieces {
		var c openai.Completion
		if json.Unmarshal([]byte(piece), &c) != nil {
			continue // [DONE]
		}
		for _, choice := range c.Choices {
			switch {
			case choice.Delta != nil && choice.Delta.Content != nil:
				text += *choice.Delta.Content
			case choice.Message != nil:
				text += *choice.Message.Content
			}
			if choice.FinishReason != nil {
				finish = *choice.FinishReason
			}
		}
	}
	return text, finish
}

// capMargin is what an answer may have beyond the cap before it is taken for one whose cap
// was ignored.
const capMargin = cvCap/8 + 16

// A server that ignores the output cap is cut off soon after it. The caller has an
// answer that ends there, and pays for that; the ledger has the worst case or all that
// was seen.
func TestServerIgnoresTheCap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, unit string
		margin     int64 // tokens beyond the cap that may be seen
		edit       func(string) string
	}{
		{"words", " word", capMargin + 1, inOnePiece("nobody")},
		{"no words", "人", capMargin + cvCap/3 + 1, inOnePiece("nobody")},
		{"in one piece", " word", 0, inOnePiece("the model")},
		{"in one piece, no words", "人", 0, inOnePiece("the provider")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachWay(t, both, func(t *testing.T, stream bool) {
				closed := make(chan struct{})
				server := endless(tt.unit)(nil)
				g := setup{model: func(http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						server.ServeHTTP(w, r)
						close(closed)
					})
				}}.newRig(t, withPool, tt.edit)
				g.freeze(0)
				var metrics buffer.Synced
				g.handler.Metrics = emf.New(&metrics, "tokenfuse", g.now)
				token := g.token("123", "")
				a := g.chat(token, cvCall("Hi.", stream))
				await(t, closed, "the server is done")
				g.wantAnswer(a, stream, "", 0)
				text, finish := answered(t, a, stream)
				tokenizer := g.offer("cv").Candidates[0].Tokenizer
				shown := int64(tokenizer.Count(text))
				check.That(t, finish == "length" && shown >= cvCap-1 && shown <= cvCap+tt.margin, "%d tokens are shown, and finish_reason %s", shown, finish)
				events := g.spendEvents()
				check.Must(t, len(events) == 1 && events[0].Outcome == ledger.Completed && events[0].Cost >= testPrices.WorstCase(g.cvInput(), cvCap), "%+v", events)
				if inPieces := strings.Contains(g.sent.String(), `"stream":true`); inPieces && events[0].Output > cvCap+tt.margin {
					t.Errorf("%d tokens were let in", events[0].Output)
				} else if !inPieces && (events[0].Output != 320_000 || events[0].Estimated) {
					t.Errorf("in one piece %d tokens were sent, the ledger has %+v", 320_000, events[0])
				}
				g.wantLeftOf(token, g.cvInput()+shown, events[0].Cost, 1)
				check.That(t, strings.Contains(g.log.String(), `"level":"ERROR","msg":"the provider ignores the output cap`) && strings.Contains(g.log.String(), `"model":"small"`),
					"it is not in the log: %s", g.log)
				line := g.metric(t, &metrics)
				check.That(t, line["OutputCapIgnored"] == 1.0 && line["Model"] == "small", "it is not in the metrics: %v", line)
			})
		})
	}
}

// An answer that ends at the cap is whole, whatever it is made of and however its
// tokens are counted: a server that keeps to it is never cut off.
func TestHonestAnswerIsNotCut(t *testing.T) {
	t.Parallel()
	for _, tokenizer := range []string{"o200k_base", "cl100k_base", "upper_bound"} {
		for name, unit := range map[string]string{"words": " word", "blanks": strings.Repeat(" ", 128), "han": "人", "emoji": "👩‍👩‍👧", "a letter": "a"} {
			t.Run(tokenizer+", "+name, func(t *testing.T) {
				t.Parallel()
				g := newRig(t, func(yaml string) string { return strings.ReplaceAll(yaml, "o200k_base", tokenizer) })
				g.freeze(0)
				c := g.offer("cv").Candidates[0]
				// As long as it can be, a few tokens beyond included, which are cut otherwise
				// by the model than by us.
				const limit = cvCap + 8
				tooMany := func(units int) bool { return c.Tokenizer.AtLeast(strings.Repeat(unit, units)) > limit }
				most := 1
				for !tooMany(most) {
					most *= 2
				}
				units := sort.Search(most, func(n int) bool { return tooMany(n + 1) })
				parts := slices.Repeat([]provider.Part{text(unit)}, units)
				parts = append(parts, finished("stop"), reported(price.Usage{Input: 20, Output: cvCap}))
				g.provide(scripted{parts: parts})
				for _, stream := range []bool{false, true} {
					a := g.chat(g.token("123", ""), cvCall("Hi.", stream))
					text, finish := answered(t, a, stream)
					check.That(t, a.status == http.StatusOK && finish == "stop" && text == strings.Repeat(unit, len(parts)-2),
						"%d, finish_reason %q, %d bytes of %d", a.status, finish, len(text), len(unit)*(len(parts)-2))
				}
			})
		}
	}
}

// Usage that no model can have shuts nobody out, refunds nothing and teaches the
// alarm no wrong baseline.
func TestUsageThatNoModelCanHave(t *testing.T) {
	t.Parallel()
	for _, usage := range []string{
		`{"prompt_tokens":40,"completion_tokens":2147483648}`,
		`{"prompt_tokens":1000000000000,"completion_tokens":1000000000000}`,
		`{"prompt_tokens":9223372036854775000,"completion_tokens":9223372036854775000}`,
		`{"prompt_tokens":9223372036854775807,"completion_tokens":1,"total_tokens":9223372036854775807}`,
		`{"prompt_tokens":1099511627776,"completion_tokens":1099511627776,"prompt_tokens_details":{"cached_tokens":1099511627776}}`,
		`{"prompt_tokens":40,"completion_tokens":2,"total_tokens":9223372036854775807}`,
	} {
		t.Run(usage, func(t *testing.T) {
			t.Parallel()
			eachWay(t, both, func(t *testing.T, stream bool) {
				g := setup{model: answering(usage)}.newRig(t, withPool, func(yaml string) string {
					return strings.Replace(yaml, `{input: "0.40", cached_input: "0.10", output: "1.60"}`, `{input: "0.40", cached_input: "0.10", output: "1.60", long_context: {above: 200000, input: "10000", cached_input: "10000", output: "10000"}}`, 1)
				})
				g.freeze(0)
				token := g.token("123", "")
				a := g.chat(token, cvCall("Hi.", stream))
				g.wantAnswer(a, stream, "", 0)
				worst := testPrices.WorstCase(g.cvInput(), cvCap)
				events := g.spendEvents()
				check.That(t, len(events) == 1 && events[0].Cost == worst && events[0].Estimated, "the ledger has %+v, want $%s", events, worst)
				g.wantLeftOf(token, g.cvInput()+2, worst, 1)
				g.wantCommitted(worst)
				check.That(t, strings.Contains(g.log.String(), `"level":"ERROR"`) && strings.Contains(g.log.String(), `"model":"small"`),
					"it is not in the log: %s", g.log)
				for _, line := range strings.Split(g.do(g.request(http.MethodGet, "/v1/limits", token, "")).body, ",") {
					check.That(t, !strings.Contains(line, ":-"), "a negative figure: %s", line)
				}
				if a := g.chat(token, cvCall("Hi.", stream)); a.status != http.StatusOK {
					t.Errorf("the caller is shut out: %d %s", a.status, a.body)
				}
				if a := g.chat(g.token("456", ""), cvCall("Hi.", stream)); a.status != http.StatusOK {
					t.Errorf("others are shut out: %d %s", a.status, a.body)
				}
			})
		})
	}
}

// Many cheap calls come to what they cost, not to a micro-dollar each.
func TestSpendIsExact(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	token := g.token("123", "")
	one := price.Usage{Input: 1, CachedInput: 1, Output: 1}
	g.provide(scripted{parts: []provider.Part{text("A"), finished("stop"), reported(one)}})
	const calls = 20
	for range calls {
		a := g.chat(token, chatBody("docqa", "Hi."))
		check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
	}
	// 20 calls at 1.7 micro-dollars.
	left := g.remaining(token)["spend"]
	check.That(t, left == 2_000_000-34 && testPrices.Cost(one)*calls == 34*price.MicroDollar, "%d micro-dollars are left of 2,000,000 after 34", left)
}

// breaksWith is a provider that fails after it has done something.
type breaksWith func()

func (do breaksWith) Call(context.Context, provider.Request) (provider.Answer, error) {
	do()
	return nil, failed(provider.Unreachable, 0)
}

// While the store does not take the settle, nobody is told that nothing was taken.
func TestUnsettledIsSaid(t *testing.T) {
	t.Parallel()
	g := setup{bucket: bucket.Options{AttemptTimeout: time.Second, ReserveTimeout: time.Minute, SettleTimeout: 300 * time.Millisecond}}.newRig(t)
	g.freeze(0)
	g.provide(breaksWith(func() { g.net.Plan = faults.Always(faults.Throttled) }))
	e := g.wireError(g.chat(g.token("123", ""), cvCall("Hi.", false)))
	check.That(t, e.Code == string(openai.ProviderError) && !strings.Contains(e.Message, "Nothing was taken") && strings.Contains(e.Message, "The call could not be settled: your quota comes back by itself"),
		"%+v", e)
}

// Waits are never negative, however long they are.
func TestLongWaits(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, 1, time.Second, math.MaxInt64 - 1, math.MaxInt64} {
		if got := openai.Seconds(d); got < 0 || got < int64(d/time.Second) || got > int64(d/time.Second)+1 {
			t.Errorf("%d: %d s", d, got)
		}
		if got := ceilMillis(d); got < 0 || d-got >= time.Millisecond {
			t.Errorf("%d: %d ns in whole ms", d, got)
		}
		if strings.Contains(inWords(d), "-") {
			t.Errorf("%d: %s", d, inWords(d))
		}
	}
}
