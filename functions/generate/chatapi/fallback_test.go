package chatapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// spare is a second provider, whose only model costs four times as much and is
// counted by an upper bound, and is the fallback of docqa.
type spare struct {
	*rig
	main, other atomic.Int64 // requests to each
	mainStatus  atomic.Int64 // what the first answers; 0: as it should
	spareStatus atomic.Int64
}

func newSpare(t *testing.T, edit ...func(yaml string) string) *spare {
	t.Helper()
	s := &spare{}
	front := func(calls, status *atomic.Int64, model http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			if code := int(status.Load()); code != 0 {
				http.Error(w, `{"error":{"message":"no"}}`, code)
				return
			}
			model.ServeHTTP(w, r)
		})
	}
	other := httptest.NewServer(front(&s.other, &s.spareStatus, upstream.New(upstream.Options{})))
	t.Cleanup(other.Close)
	s.rig = setup{model: func(up http.Handler) http.Handler { return front(&s.main, &s.mainStatus, up) }}.newRig(t, append(edit, func(yaml string) string {
		return strings.NewReplacer(
			"models:\n", `  other: {kind: openai, base_url: "`+other.URL+`/v1", timeout: 20s, bills_errors: false}
models:
  big: {provider: other, id: big-model, tokenizer: upper_bound, max_tokens_field: max_completion_tokens, context: 1000000,
        price_per_mtok: {input: "1.60", output: "6.40"}}
`,
			`docqa: {model: small,`, `docqa: {model: small, fallback: big,`).Replace(yaml)
	})...)
	return s
}

const docqaCall = `{"model":"docqa","messages":[{"role":"user","content":"What is a token bucket?"}],"max_tokens":100}`

func TestFallback(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"", `,"stream":true`} {
		for name, tt := range map[string]struct {
			main, spare int // status; 0: an answer
			billsErrors bool
			prompt      string
			status      int
			upstream    int    // of the error
			model       string // whose price was paid; "": nothing was
			asksSpare   bool
		}{
			"the model answers":    {status: 200, model: "small"},
			"it is down":           {main: 503, status: 200, model: "big", asksSpare: true},
			"it fails":             {main: 500, status: 200, model: "big", asksSpare: true},
			"it is overloaded":     {main: 429, status: 200, model: "big", asksSpare: true},
			"the key is no good":   {main: 401, status: 200, model: "big", asksSpare: true},
			"the model is retired": {main: 404, status: 200, model: "big", asksSpare: true},
			"the request is wrong": {main: 400, status: 502, upstream: 400},
			"too large":            {main: 413, status: 502, upstream: 413},
			"both are down":        {main: 503, spare: 500, status: 502, upstream: 500, asksSpare: true},
			// The answer may have been billed: a second one would be paid twice.
			"an answer that breaks":           {prompt: " [[fail:cut]]", status: 502, model: "small"},
			"it fails, which may be billed":   {main: 500, billsErrors: true, status: 502, upstream: 500, model: "small"},
			"so may what it has asked of":     {main: 502, billsErrors: true, status: 502, upstream: 502, model: "small"},
			"somebody gave up waiting":        {main: 408, status: 502, upstream: 408, model: "small"},
			"a gateway gave up waiting":       {main: 504, status: 502, upstream: 504, model: "small"},
			"CloudFlare gave up waiting":      {main: 524, status: 502, upstream: 524, model: "small"},
			"a status that nobody knows":      {main: 418, status: 502, upstream: 418, model: "small"},
			"load is refused, by any of them": {main: 529, billsErrors: true, status: 200, model: "big", asksSpare: true},
			"it is down, as any of them":      {main: 503, billsErrors: true, status: 200, model: "big", asksSpare: true},
			"too many, for any of them":       {main: 429, billsErrors: true, status: 200, model: "big", asksSpare: true},
			"the spare's bill":                {main: 503, spare: 504, status: 502, upstream: 504, model: "big", asksSpare: true},
		} {
			t.Run(name+stream, func(t *testing.T) {
				t.Parallel()
				s := newSpare(t, func(yaml string) string {
					return strings.Replace(yaml, "bills_errors: false", fmt.Sprintf("bills_errors: %t", tt.billsErrors), 1)
				})
				s.mainStatus.Store(int64(tt.main))
				s.spareStatus.Store(int64(tt.spare))
				token := s.token("ann", "")
				s.freeze(0)
				before := s.remaining(token)
				a := s.chat(token, strings.Replace(strings.Replace(docqaCall, "bucket?", "bucket?"+tt.prompt, 1), `"max_tokens":100`, `"max_tokens":100`+stream, 1))
				// A stream may have begun when it breaks.
				begun := stream != "" && tt.prompt != ""
				check.Must(t, a.status == tt.status || begun, "%d %s", a.status, a.body)
				if tt.upstream != 0 {
					e := s.wireError(a)
					check.That(t, e.Code == string(openai.ProviderError) && e.Upstream != nil && *e.Upstream == tt.upstream, "%+v", e)
				}
				check.That(t, s.main.Load() == 1 && (s.other.Load() == 1) == tt.asksSpare && s.other.Load() <= 1,
					"%d calls of the model, %d of the fallback", s.main.Load(), s.other.Load())

				events := s.spendEvents()
				left := s.remaining(token)
				if tt.model == "" {
					check.That(t, len(events) == 0 && left["tokens"] == before["tokens"] && left["spend"] == before["spend"],
						"paid for nothing: %+v, %v left of %v", events, left, before)
					return
				}
				check.Must(t, len(events) == 1 && events[0].Model == tt.model, "events %+v, want one of %s", events, tt.model)
				e := events[0]
				if tt.upstream != 0 { // the ledger and the caller part ways
					worst := s.policy.Models[tt.model].Prices.WorstCase(e.Input, 100)
					check.That(t, e.Estimated && e.Cost == worst && e.Outcome == ledger.Failed && left["tokens"] == before["tokens"],
						"%+v, want a worst case of %d; %v left of %v", e, worst, left, before)
				}
				if tt.status == 200 {
					rates := s.policy.Models[tt.model].Prices
					want := rates.Cost(price.Usage{Input: e.Input, CachedInput: e.Cached, Output: e.Output})
					check.That(t, e.Cost == want && e.Outcome == ledger.Completed && e.Output != 0, "%+v, want a cost of %d", e, want)
					paid := before["tokens"] - left["tokens"]
					check.That(t, paid == e.Input+e.Output, "%d tokens paid for %d", paid, e.Input+e.Output)
				}
			})
		}
	}
}

// A fallback that would give another answer than was asked for is not asked: the failure is
// the model's own.
func TestFallbackThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	spare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"type":"message","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":5}}`))
	}))
	t.Cleanup(spare.Close)
	down := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "{}", http.StatusServiceUnavailable) })
	}
	s := setup{model: down}.newRig(t, func(yaml string) string {
		return strings.NewReplacer(
			"models:\n", `  other: {kind: anthropic, base_url: "`+spare.URL+`", api_key: {env: TEST_SECRET}}
models:
  big: {provider: other, id: big-model, tokenizer: upper_bound, context: 1000000, price_per_mtok: {input: "1.60", output: "6.40"}}
`, `docqa: {model: small,`, `docqa: {model: small, fallback: big, allow: [tools],`).Replace(yaml)
	})
	token := s.token("ann", "")
	for schema, want := range map[string]int{`{"type":"object"}`: http.StatusOK, `{"type":"string"}`: http.StatusBadGateway} {
		before := asked.Load()
		a := s.chat(token, `{"model":"docqa","messages":[{"role":"user","content":"Hi."}],"max_tokens":100,"tools":[{"type":"function","function":{"name":"f","parameters":`+schema+`}}]}`)
		check.That(t, a.status == want && (asked.Load() > before) == (want == http.StatusOK), "%s: %d %s, %d calls of the fallback", schema, a.status, a.body, asked.Load()-before)
		if want != http.StatusOK {
			e := s.wireError(a)
			check.That(t, e.Upstream != nil && *e.Upstream == http.StatusServiceUnavailable, "%+v", e)
		}
	}
}

// TestBreaker: a provider that says that it is down is not asked for a while, and
// calls fail at once and for nothing, or go to the fallback.
func TestBreaker(t *testing.T) {
	t.Parallel()
	s := newSpare(t)
	s.freeze(0)
	s.mainStatus.Store(http.StatusServiceUnavailable)
	token := s.token("ann", "")
	cv := `{"model":"cv","messages":[{"role":"user","content":"Hi."}],"max_tokens":10}`
	before := s.remaining(token)
	for range 5 {
		e := s.wireError(s.chat(token, cv))
		check.Must(t, e.Code == string(openai.ProviderError) && e.Upstream != nil && *e.Upstream == 503, "%+v", e)
	}
	asked := s.main.Load()
	check.Must(t, asked == 5, "%d calls of 5", asked)
	e := s.wireError(s.chat(token, cv))
	check.That(t, e.Code == string(openai.ProviderError) && e.Upstream == nil && strings.Contains(e.Message, "Nothing was taken"), "while it is open: %+v", e)
	a := s.chat(token, docqaCall)
	check.That(t, a.status == http.StatusOK, "with a fallback: %d %s", a.status, a.body)
	check.That(t, s.main.Load() == asked && s.other.Load() == 1, "%d more calls of the model, %d of the fallback", s.main.Load()-asked, s.other.Load())
	left := s.remaining(token)
	check.That(t, left["cv"] == before["cv"] && before["requests"]-left["requests"] == 7, "%v left of %v", left, before)
	events := s.spendEvents()
	check.That(t, len(events) == 1 && before["tokens"]-left["tokens"] == events[0].Input+events[0].Output, "%v left of %v, events %+v", left, before, events)
}
