package chatapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// testPrices are those of testPolicy's model.
var testPrices = price.Table{Rates: price.Rates{Input: 400_000, CachedInput: 100_000, CacheWrite: 400_000, Output: 1_600_000}}

// What a call comes to: in tokens, for the caller's limits; in dollars, for the ledger,
// which the caller's limits follow.
type (
	callerPays int
	ledgerHas  int
)

const (
	paysNothing callerPays = iota
	paysBilled             // what the upstream billed
	paysWorst
)

const (
	hasNothing ledgerHas = iota // no spend event at all
	hasBilled
	hasWorst // an estimate
)

const cvCap = 300

// settled is how one call of user#123 to cv must have been settled, at a clock
// that stands still.
type settled struct {
	caller  callerPays
	quota   int64 // how many of 3 it used
	ledger  ledgerHas
	outcome ledger.Outcome
}

// wantSettled asserts it, for a call that the upstream billed.
func (g *rig) wantSettled(token string, want settled, billed price.Usage) {
	g.t.Helper()
	// All of these calls have the same input but for the marker, which is counted
	// alike by both sides: the input that was billed is what we counted.
	worst := price.Usage{Input: billed.Input, Output: cvCap}
	paid := price.Usage{}
	switch want.caller {
	case paysBilled:
		paid = billed
	case paysWorst:
		paid = worst
	}
	cost := price.Pico(0) // dollars follow the ledger
	switch want.ledger {
	case hasBilled:
		cost = testPrices.Cost(billed)
	case hasWorst:
		cost = testPrices.WorstCase(worst.Input, worst.Output)
	}
	left := g.remaining(token)
	for limit, remain := range map[string]int64{
		"requests": 60 - 1, // whatever becomes of the call
		"tokens":   max(0, 50_000-paid.Total()),
		"spend":    2_000_000 - cost.MicroDollars(), // rounded down
		"cv":       3 - want.quota,
	} {
		check.Equal(g.t, left[limit], remain, "%s: remain", limit)
	}
	check.Equal(g.t, g.open("user#123"), 0, "calls are still open")

	events := g.spendEvents()
	if want.ledger == hasNothing {
		check.That(g.t, len(events) == 0, "spend events of a call that cost nothing: %+v", events)
		return
	}
	check.Must(g.t, len(events) == 1, "%d spend events, want 1: %+v", len(events), events)
	e := spendEvent{
		Reservation: events[0].Reservation, Identity: "user#123", Tier: "user", Feature: "cv", Model: "small",
		Input: billed.Input, Cached: billed.CachedInput, Output: billed.Output, Reasoning: billed.Reasoning,
		Cost: testPrices.Cost(billed), Outcome: want.outcome,
	}
	if want.ledger == hasWorst {
		e.Input, e.Cached, e.Output, e.Reasoning = worst.Input, 0, worst.Output, 0
		e.Cost, e.Estimated = testPrices.WorstCase(worst.Input, worst.Output), true
	}
	check.Equal(g.t, events[0], e, "the spend event is")
	check.That(g.t, e.Reservation != "", "the spend event names no reservation")
}

// streamed is the data of a stream's events.
func streamed(body string) []string {
	var data []string
	for _, event := range strings.Split(body, "\n\n") {
		if d, ok := strings.CutPrefix(event, "data: "); ok {
			data = append(data, d)
		}
	}
	return data
}

// wantWholeStream asserts that a stream has come to its proper end.
func wantWholeStream(t *testing.T, body string) {
	t.Helper()
	if strings.HasPrefix(body, "event: ") {
		types, _ := eventsOf(t, body)
		last := types[len(types)-1]
		check.That(t, types[0] == "created" && (last == "completed" || last == "incomplete"), "the stream has no proper end: %v", types)
		return
	}
	data := streamed(body)
	check.That(t, len(data) >= 3 && data[len(data)-1] == "[DONE]" && strings.Contains(data[len(data)-2], `"finish_reason":"`),
		"the stream has no proper end: %.1000q", data)
}

// wantBrokenStream asserts that a stream ends in an error, and in a way that no
// client takes for success.
func wantBrokenStream(t *testing.T, body string, want openai.Code) {
	t.Helper()
	if strings.HasPrefix(body, "event: ") {
		types, _ := eventsOf(t, body)
		check.That(t, strings.HasSuffix(strings.Join(types, " "), " error failed") && strings.Contains(body, `"code":"`+string(want)+`"`), "the stream ends in %v, want the error %s", types, want)
		return
	}
	data := streamed(body)
	check.That(t, !strings.Contains(body, "[DONE]") && !strings.Contains(body, `"finish_reason":"`), "a broken stream looks finished: %q", data)
	check.Must(t, len(data) >= 2 && strings.Contains(data[0], `"role":"assistant"`), "the stream has not begun: %q", data)
	var last struct{ Error wireError }
	if err := json.Unmarshal([]byte(data[len(data)-1]), &last); err != nil || last.Error.Code != string(want) || last.Error.Message == "" {
		t.Errorf("the last event is %s, want an error %s", data[len(data)-1], want)
	}
}

const inStream openai.Code = "in-stream " // before a code: 200 has been sent already

// wantAnswer asserts what the caller gets: "" is success, a code an error,
// inStream and a code an error after the answer has begun.
func (g *rig) wantAnswer(a answer, stream bool, want openai.Code, upstreamStatus int) {
	g.t.Helper()
	late, isLate := strings.CutPrefix(string(want), string(inStream))
	switch {
	case isLate:
		check.Equal(g.t, a.status, http.StatusOK, "status …: %s", a.body)
		wantBrokenStream(g.t, a.body, openai.Code(late))
	case want != "":
		e := g.wireError(a)
		check.That(g.t, a.status == want.Status() && e.Code == string(want) && e.Type == "server_error", "%d %s, want %s", a.status, a.body, want)
		check.That(g.t, (e.Upstream == nil) == (upstreamStatus == 0) && (e.Upstream == nil || *e.Upstream == upstreamStatus),
			"%s: want upstream_status %d", a.body, upstreamStatus)
		check.Equal(g.t, a.header.Get("X-Should-Retry"), "false", "x-should-retry")
	case a.status != http.StatusOK:
		g.t.Errorf("%d %s", a.status, a.body)
	case stream:
		wantWholeStream(g.t, a.body)
	}
}

const (
	whole    = "whole"
	inEvents = "streamed"
	both     = ""
)

// eachWay runs a test with a buffered answer, a streamed one, or both.
func eachWay(t *testing.T, way string, test func(t *testing.T, stream bool)) {
	for _, stream := range []bool{false, true} {
		name := map[bool]string{false: whole, true: inEvents}[stream]
		if way == both || way == name {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, stream)
			})
		}
	}
}

// The built-in upstream fails in each of its ways, whatever is asked of it.
func TestSettle(t *testing.T) {
	t.Parallel()
	for _, kind := range callKinds {
		t.Run(kind.name, kind.testSettle)
	}
}

func (kind callKind) testSettle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mark, way string
		code      openai.Code
		upstream  int
		want      settled
	}{
		{"", both, "", 0, settled{paysBilled, 1, hasBilled, ledger.Completed}},
		{"[[long]]", both, "", 0, settled{paysBilled, 1, hasBilled, ledger.Completed}},
		{"[[cached:7]]", both, "", 0, settled{paysBilled, 1, hasBilled, ledger.Completed}},
		{"[[reasoning:40]]", both, "", 0, settled{paysBilled, 1, hasBilled, ledger.Completed}},
		{"[[reasoning:300]]", both, "", 0, settled{paysBilled, 0, hasBilled, ledger.Completed}}, // nothing but reasoning: no answer
		// Refused: nobody pays.
		{"[[fail:500]]", both, openai.ProviderError, 500, settled{paysNothing, 0, hasNothing, ""}},
		{"[[fail:429]]", both, openai.ProviderError, 429, settled{paysNothing, 0, hasNothing, ""}},
		// May have been billed, but nothing was seen: the ledger assumes the worst.
		{"[[fail:timeout]]", both, openai.ProviderTimeout, 0, settled{paysNothing, 0, hasWorst, ledger.Failed}},
		{"[[fail:empty]]", both, openai.ProviderError, 200, settled{paysNothing, 0, hasWorst, ledger.Failed}},
		// What was seen is all that was billed, also behind a caller who waits for the
		// whole answer: the provider streams.
		{"[[fail:cut]]", whole, openai.ProviderError, 200, settled{paysBilled, 0, hasWorst, ledger.Failed}},
		{"[[fail:cut]]", inEvents, inStream + openai.ProviderError, 0, settled{paysBilled, 0, hasWorst, ledger.Failed}},
		{"[[fail:nousage]]", both, "", 0, settled{paysBilled, 1, hasWorst, ledger.Completed}},
	} {
		t.Run(tt.mark, func(t *testing.T) {
			t.Parallel()
			eachWay(t, tt.way, func(t *testing.T, stream bool) {
				g := newRig(t, openToAll, func(yaml string) string {
					if tt.code == openai.ProviderTimeout {
						yaml = strings.ReplaceAll(yaml, "timeout: 20s", "timeout: 1s")
					}
					return yaml
				})
				g.freeze(0)
				token := g.token("123", "")
				a := kind.ask(g, token, "I am a welder. "+tt.mark, stream)
				calls := g.upstream.Calls()
				check.Must(t, len(calls) == 1, "%d calls upstream, want 1: %s", len(calls), a.body)
				check.Equal(t, calls[0].MaxOutputTokens, cvCap, "the cap upstream is")
				g.wantAnswer(a, stream, tt.code, tt.upstream)
				billed := calls[0].Billed
				check.Must(t, tt.want.ledger == hasNothing || billed.Input != 0, "the upstream billed nothing: the row tests nothing")
				check.That(t, billed.Input <= g.counted(), "the upstream billed %d tokens of input, and %d were counted", billed.Input, g.counted())
				if tt.want.ledger == hasWorst { // what was seen is all that is known
					billed = price.Usage{Input: g.counted(), Output: max(0, billed.Output-kind.unseen)}
				}
				g.wantSettled(token, tt.want, billed)
			})
		})
	}
}

// modelOf is a provider that answers every call in the same way, in the form
// that was asked for.
func modelOf(status int, contentType, buffered, events string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var req struct{ Stream bool }
			_ = json.NewDecoder(r.Body).Decode(&req)
			w.Header().Set("Content-Type", contentType)
			text := buffered
			if req.Stream {
				text = events
				if contentType == "" {
					w.Header().Set("Content-Type", "text/event-stream")
				}
			} else if contentType == "" {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})
	}
}

// answering is a provider whose answer is "Hello there" (2 tokens) with a usage.
func answering(usage string) func(http.Handler) http.Handler {
	return modelOf(200, "",
		`{"choices":[{"index":0,"message":{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],"usage":`+usage+`}`,
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n"+
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" there\"}}]}\n\n"+
			"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
			"data: {\"choices\":[],\"usage\":"+usage+"}\n\ndata: [DONE]\n\n")
}

// cvInput is how many tokens the prompt "Hi." to cv has.
func (g *rig) cvInput() int64 {
	c, refusal := g.offer("cv").Cap(admission.Prompt{Messages: []openai.Message{{Role: "user", Content: "Hi."}}})
	if refusal != nil {
		g.t.Fatal(refusal.Kind)
	}
	return c.Input
}

var baseURL = regexp.MustCompile(`base_url: "[^"]*"`)

// Providers that are not there, or answer what no provider should. Nothing that
// they say is trusted, but what they bill is charged.
func TestSettleStrangeProvider(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	nobody := "http://" + closed.Addr().String()
	closed.Close()

	seen := &price.Usage{Output: 2} // input as we count it
	for _, tt := range []struct {
		name     string
		model    func(http.Handler) http.Handler
		way      string
		code     openai.Code
		upstream int
		want     settled
		billed   *price.Usage // Input 0: as we count it
	}{
		{"unreachable", nil, both, openai.ProviderError, 0, settled{paysNothing, 0, hasNothing, ""}, nil},
		{"redirect", modelOf(307, "", "", ""), both, openai.ProviderError, 307, settled{paysNothing, 0, hasNothing, ""}, nil},
		{"not found", modelOf(404, "text/html", "<p>", "<p>"), both, openai.ProviderError, 404, settled{paysNothing, 0, hasNothing, ""}, nil},
		{"HTML", modelOf(200, "text/html", "<p>", "<p>"), both, openai.ProviderError, 200, settled{paysNothing, 0, hasWorst, ledger.Failed}, nil},
		{"no content", modelOf(204, "", "", ""), both, openai.ProviderError, 204, settled{paysNothing, 0, hasWorst, ledger.Failed}, nil},
		{"no JSON", modelOf(200, "", "{", "data: {\n\n"), both, openai.ProviderError, 200, settled{paysNothing, 0, hasWorst, ledger.Failed}, nil},
		{"other JSON", modelOf(200, "", "[1]", "data: [1]\n\n"), both, openai.ProviderError, 200, settled{paysNothing, 0, hasWorst, ledger.Failed}, nil},
		{"error for an answer", modelOf(200, "", `{"error":{"code":"x"}}`, "data: {\"error\":{\"code\":\"x\"}}\n\n"),
			both, openai.ProviderError, 200, settled{paysNothing, 0, hasWorst, ledger.Failed}, nil},
		{"garbage after a beginning", modelOf(200, "", "", "data: {\"choices\":[{\"delta\":{\"content\":\"Hello there\"}}]}\n\ndata: ?\n\n"),
			inEvents, inStream + openai.ProviderError, 0, settled{paysBilled, 0, hasWorst, ledger.Failed}, seen},
		{"end without a finish_reason", modelOf(200, "", "", "data: {\"choices\":[{\"delta\":{\"content\":\"Hello there\"}}]}\n\ndata: [DONE]\n\n"),
			inEvents, inStream + openai.ProviderError, 0, settled{paysBilled, 0, hasWorst, ledger.Failed}, seen},

		// Above the cap, and above all that the limit holds: charged in full.
		{"above the cap", answering(`{"prompt_tokens":40,"completion_tokens":5000}`), both, "", 0,
			settled{paysBilled, 1, hasBilled, ledger.Completed}, &price.Usage{Input: 40, Output: 5000}},
		{"above the limit", answering(`{"prompt_tokens":40,"completion_tokens":150000}`), both, "", 0,
			settled{paysBilled, 1, hasBilled, ledger.Completed}, &price.Usage{Input: 40, Output: 150_000}},
		// Usage that cannot be true is none.
		{"negative usage", answering(`{"prompt_tokens":-40,"completion_tokens":-5}`), both, "", 0,
			settled{paysBilled, 1, hasWorst, ledger.Completed}, seen},
		{"negative output", answering(`{"prompt_tokens":40,"completion_tokens":-5}`), both, "", 0,
			settled{paysBilled, 1, hasWorst, ledger.Completed}, seen},
		{"absurd usage", answering(`{"prompt_tokens":40,"completion_tokens":1000000000000000000}`), both, "", 0,
			settled{paysBilled, 1, hasWorst, ledger.Completed}, seen},
		{"usage beyond int64", answering(`{"prompt_tokens":40,"completion_tokens":1e19}`), both, "", 0,
			settled{paysBilled, 1, hasWorst, ledger.Completed}, seen},
		{"more cached than input", answering(`{"prompt_tokens":40,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":41}}`), both, "", 0,
			settled{paysBilled, 1, hasWorst, ledger.Completed}, seen},
		{"usage of nothing", answering(`{"prompt_tokens":0,"completion_tokens":0}`), both, "", 0,
			settled{paysBilled, 1, hasWorst, ledger.Completed}, seen},
		{"usage of another kind", answering(`"none"`), both, "", 0, settled{paysBilled, 1, hasWorst, ledger.Completed}, seen},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachWay(t, tt.way, func(t *testing.T, stream bool) {
				g := setup{model: tt.model}.newRig(t, func(yaml string) string {
					if tt.model == nil {
						yaml = baseURL.ReplaceAllString(yaml, `base_url: "`+nobody+`"`)
					}
					return yaml
				})
				g.freeze(0)
				token := g.token("123", "")
				a := g.chat(token, cvCall("Hi.", stream))
				g.wantAnswer(a, stream, tt.code, tt.upstream)
				billed := price.Usage{}
				if tt.billed != nil {
					billed = *tt.billed
				}
				if billed.Input == 0 {
					billed.Input = g.cvInput()
				}
				g.wantSettled(token, tt.want, billed)
				if billed.Total() > 50_000 {
					e := g.wireError(g.chat(token, cvCall("Hi.", stream)))
					check.That(t, e.Code == string(openai.RateLimitExceeded) && e.Limit == "tokens" && *e.Remaining == 0, "in debt, the next call gets %+v", e)
				}
			})
		})
	}
}

// More input than was counted is charged as it is reported, also where that is more than was
// reserved; and the log tells how far off the count was, wherever tools or images may be why.
func TestInputAboveTheCount(t *testing.T) {
	t.Parallel()
	const debt, above = "the provider reported more than was reserved: it is charged as debt", "the provider reported more input than was counted: it is charged"
	for _, kind := range callKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			counted := int64(0)
			for _, more := range []int64{0, 1, 5_000} { // the first tells what is counted
				usage := price.Usage{Input: counted + more, Output: 2}
				g := setup{model: answering(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, max(1, usage.Input), usage.Output))}.newRig(t, openToAll)
				g.freeze(0)
				token := g.token("123", "")
				g.wantAnswer(kind.ask(g, token, "Hi.", false), false, "", 0)
				if counted == 0 {
					counted = g.counted()
					continue
				}
				g.wantSettled(token, settled{paysBilled, 1, hasBilled, ledger.Completed}, usage)
				message, more := debt, kind.with["tools"] != nil || kind.part != nil
				if usage.Total() <= counted+cvCap {
					message = above
				}
				var lines []string
				for _, line := range append(g.logged(debt), g.logged(above)...) {
					lines = append(lines, string(line))
				}
				check.Must(t, len(lines) == 1 || message == above && !more && len(lines) == 0, "%d of %d tokens: %q", usage.Input, counted, lines)
				for _, line := range lines {
					check.That(t, strings.Contains(line, message) && strings.Contains(line, fmt.Sprintf(`"reported_input_tokens":%d,"counted_input_tokens":%d,`, usage.Input, counted)), "%s", line)
				}
			}
		})
	}
}

// brittle is a provider that panics at a point of its answer "Hello there".
type brittle struct{ at string }

func (b brittle) Call(context.Context, provider.Request) (provider.Answer, error) {
	b.reach("call")
	return &brittleAnswer{brittle: b}, nil
}

func (b brittle) reach(point string) {
	if point == b.at {
		panic("brittle at " + point)
	}
}

type brittleAnswer struct {
	brittle
	parts int
}

func (a *brittleAnswer) Next() (provider.Part, error) {
	a.parts++
	switch a.parts {
	case 1:
		a.reach("first part")
		return provider.Part{Content: "Hello there"}, nil
	case 2:
		a.reach("second part")
		return provider.Part{FinishReason: "stop"}, nil
	case 3:
		a.reach("usage")
		return provider.Part{Usage: &price.Usage{Input: 40, Output: 5}}, nil
	}
	return provider.Part{}, io.EOF
}

func (a *brittleAnswer) Close() error {
	a.reach("close")
	return nil
}

// provide puts another provider behind all features.
func (g *rig) provide(p provider.Provider) {
	for name := range g.handler.providers {
		g.handler.providers[name] = p
	}
}

// A panic on our side of the provider is settled as a failure of ours.
func TestSettlePanic(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at    string
		begun bool // a stream's answer has begun by then
		want  settled
		quota int64 // if it is a stream: the caller has the whole text
		usage price.Usage
	}{
		{"call", false, settled{paysNothing, 0, hasWorst, ledger.Failed}, 0, price.Usage{}},
		{"first part", false, settled{paysNothing, 0, hasWorst, ledger.Failed}, 0, price.Usage{}},
		{"second part", true, settled{paysBilled, 0, hasWorst, ledger.Failed}, 0, price.Usage{Output: 2}},
		{"usage", true, settled{paysBilled, 0, hasWorst, ledger.Failed}, 1, price.Usage{Output: 2}},
		{"close", true, settled{paysBilled, 0, hasBilled, ledger.Failed}, 1, price.Usage{Input: 40, Output: 5}},
	} {
		t.Run(tt.at, func(t *testing.T) {
			t.Parallel()
			eachWay(t, both, func(t *testing.T, stream bool) {
				g := newRig(t)
				g.freeze(0)
				g.provide(brittle{tt.at})
				token := g.token("123", "")
				a := g.chat(token, cvCall("Hi.", stream))
				want := openai.InternalError
				if stream && tt.begun {
					want = inStream + want
				}
				g.wantAnswer(a, stream, want, 0)
				billed := tt.usage
				if billed.Input == 0 {
					billed.Input = g.cvInput()
				}
				wanted := tt.want // each way has its own
				if stream {
					wanted.quota = tt.quota
				}
				g.wantSettled(token, wanted, billed)
				check.That(t, strings.Contains(a.body, "Something went wrong on our side. Counted: "), "it is not said what was taken: %s", a.body)
				check.That(t, !strings.Contains(a.body, "brittle"), "the cause is shown: %s", a.body)
				check.That(t, len(g.logged("panic")) == 1, "the panic is not in the log: %s", g.log)
			})
		})
	}
}

// An invocation has a deadline of its own: the provider call ends so early that
// the settle ends in time, even if the store no longer answers.
func TestSettleBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	for _, storeHangs := range []bool{false, true} {
		t.Run(fmt.Sprintf("store hangs %t", storeHangs), func(t *testing.T) {
			t.Parallel()
			var called atomic.Bool
			cancelled := make(chan time.Time, 1)
			g := setup{model: func(http.Handler) http.Handler {
				return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					called.Store(true)
					<-r.Context().Done()
					cancelled <- time.Now()
				})
			}}.newRig(t)
			g.freeze(0)
			token := g.token("123", "")
			g.remaining(token) // the keys are fetched
			const forCall = 500 * time.Millisecond
			start := time.Now()
			deadline := start.Add(admission.SettleMargin + forCall)
			ctx, cancel := context.WithDeadline(context.Background(), deadline)
			defer cancel()
			g.net.Plan = func(string, []byte) faults.Fault {
				if storeHangs && called.Load() {
					return faults.Hang
				}
				return faults.None
			}
			a := g.do(g.request(http.MethodPost, "/v1/chat/completions", token, cvCall("Hi.", false)).WithContext(ctx))
			early := time.Until(deadline)
			check.That(t, early > 0, "the answer came %s after the deadline", -early)
			g.net.Plan = nil
			if ended := <-cancelled; ended.Sub(start) < forCall-50*time.Millisecond || deadline.Sub(ended) < admission.SettleMargin-500*time.Millisecond {
				t.Errorf("the call was ended after %s, want %s", ended.Sub(start), forCall)
			}
			g.wantAnswer(a, false, openai.ProviderTimeout, 0)
			if !storeHangs {
				g.wantSettled(token, settled{paysNothing, 0, hasWorst, ledger.Failed}, price.Usage{Input: g.cvInput()})
			} else if events := g.spendEvents(); len(events) != 1 {
				t.Errorf("spend events %+v", events)
			}
		})
	}
}

// The pools are settled with in the same time, however many they are.
func TestSettleWithPoolsBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	const forCall = 500 * time.Millisecond
	var called atomic.Bool
	answer := answering(`{"prompt_tokens":40,"completion_tokens":5000}`) // an overrun must be charged to each
	g := setup{model: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			called.Store(true)
			answer(nil).ServeHTTP(w, r)
		})
	}}.newRig(t, noChallenges)
	deadline := time.Now().Add(admission.SettleMargin + forCall)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	g.net.Plan = func(string, []byte) faults.Fault {
		if called.Load() {
			return faults.Hang
		}
		return faults.None
	}
	a := g.do(g.request(http.MethodPost, "/v1/chat/completions", "", chatBody("docqa", "Hi.")).WithContext(ctx))
	early := time.Until(deadline)
	check.That(t, early > 0, "the answer came %s after the deadline", -early)
	g.wantAnswer(a, false, "", 0)
}

// Without time for a call and its settle nothing is begun.
func TestTooLate(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	token := g.token("123", "")
	before := g.remaining(token)
	ctx, cancel := context.WithTimeout(context.Background(), admission.SettleMargin)
	defer cancel()
	sends := g.sends.Load()
	a := g.do(g.request(http.MethodPost, "/v1/chat/completions", token, cvCall("Hi.", false)).WithContext(ctx))
	g.wantAnswer(a, false, openai.ProviderTimeout, 0)
	check.That(t, g.sends.Load() == sends && len(g.upstream.Calls()) == 0, "something was sent")
	for limit, remain := range g.remaining(token) {
		check.Equal(t, remain, before[limit], "%s: remain", limit)
	}
}
