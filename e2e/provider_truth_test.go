package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// scripted is a provider that answers as the last message of a request says, in
// <name of a script>.
type scripted struct {
	url string

	mu      sync.Mutex
	calls   map[string]int           // by script
	holding map[string]chan struct{} // answers that wait, by the word after the script
	arrived map[string]chan struct{}
}

// script answers one request; most is the output cap that it got.
type script func(w http.ResponseWriter, r *http.Request, most int)

var scripts = map[string]script{
	"answer": func(w http.ResponseWriter, _ *http.Request, _ int) {
		chunk(w, "Yes, it is.", "stop", 20, 7)
		done(w)
	},
	"endless": func(w http.ResponseWriter, r *http.Request, _ int) {
		for r.Context().Err() == nil {
			chunk(w, "word ", "", -1, -1)
			select { // the pace of a slow model: some words come before the time is up
			case <-r.Context().Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	},
	"over the cap": func(w http.ResponseWriter, r *http.Request, most int) {
		for range 50 * most {
			if r.Context().Err() != nil {
				return
			}
			chunk(w, " word", "", -1, -1)
		}
	},
	"reasoning": func(w http.ResponseWriter, _ *http.Request, most int) {
		chunk(w, "", "length", 20, int64(most))
		done(w)
	},
	"finish error":   func(w http.ResponseWriter, _ *http.Request, _ int) { chunk(w, "Y", "error", 20, 7); done(w) },
	"finish network": func(w http.ResponseWriter, _ *http.Request, _ int) { chunk(w, "Y", "network_error", 20, 7); done(w) },
	"no finish":      func(w http.ResponseWriter, _ *http.Request, _ int) { chunk(w, "Yes.", "", 20, 7); done(w) },
	"broken tail":    func(w http.ResponseWriter, _ *http.Request, _ int) { chunk(w, "Yes.", "stop", 20, 7); event(w, "{{{") },
	"2^31":           func(w http.ResponseWriter, _ *http.Request, _ int) { chunk(w, "Yes.", "stop", 20, 1<<31); done(w) },
	"10^12":          func(w http.ResponseWriter, _ *http.Request, _ int) { chunk(w, "Yes.", "stop", 1e12, 7); done(w) },
	"near 2^63": func(w http.ResponseWriter, _ *http.Request, _ int) {
		chunk(w, "Yes.", "stop", 1<<63-9, 1<<63-9)
		done(w)
	},
	"more than reserved": func(w http.ResponseWriter, _ *http.Request, _ int) { chunk(w, "Yes.", "stop", 20, 40_000); done(w) },
	"silence":            func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() },
}

func event(w http.ResponseWriter, data string) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\n", data)
	_ = http.NewResponseController(w).Flush()
}

func done(w http.ResponseWriter) { event(w, "[DONE]") }

// chunk sends some text, with a finish reason and usage where they are given.
func chunk(w http.ResponseWriter, text, finish string, input, output int64) {
	c := map[string]any{"id": "x", "object": "chat.completion.chunk"}
	choice := map[string]any{"index": 0, "delta": map[string]string{"content": text}, "finish_reason": nil}
	if finish != "" {
		choice["finish_reason"] = finish
	}
	c["choices"] = []any{choice}
	if input >= 0 {
		total := new(big.Int).Add(big.NewInt(input), big.NewInt(output))
		c["usage"] = map[string]any{"prompt_tokens": input, "completion_tokens": output, "total_tokens": total}
	}
	data, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	event(w, string(data))
}

var scriptMark = regexp.MustCompile(`<([^>]+)>(\w*)`)

func newScripted(t *testing.T) *scripted {
	t.Helper()
	s := &scripted{calls: map[string]int{}, holding: map[string]chan struct{}{}, arrived: map[string]chan struct{}{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL + "/v1"
	return s
}

// hold makes the answers with a word wait until they are let go. arrived is closed
// when the provider has such a call.
func (s *scripted) hold(word string) (arrived <-chan struct{}, letGo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, here := make(chan struct{}), make(chan struct{})
	s.holding[word], s.arrived[word] = held, here
	return here, func() { close(held) }
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		Model    string
		Messages []struct{ Content string }
		Most     int `json:"max_completion_tokens"`
	}
	if err != nil || json.Unmarshal(body, &asked) != nil || len(asked.Messages) == 0 {
		http.Error(w, "no request of ours", http.StatusTeapot)
		return
	}
	mark := scriptMark.FindStringSubmatch(asked.Messages[len(asked.Messages)-1].Content)
	if mark == nil {
		http.Error(w, "no script", http.StatusTeapot)
		return
	}
	name, word := mark[1], mark[2]
	s.mu.Lock()
	s.calls[asked.Model+" "+name]++
	held, here := s.holding[word], s.arrived[word]
	delete(s.arrived, word)
	s.mu.Unlock()
	if here != nil {
		close(here)
	}
	if held != nil {
		<-held
	}
	if asked.Model == "spare" {
		name = "answer"
	}
	if answer := scripts[name]; answer != nil {
		answer(w, r, asked.Most)
		return
	}
	var status int
	if _, err := fmt.Sscanf(name, "status %d", &status); err != nil {
		http.Error(w, "no such script", http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprint(w, `{"error":{"message":"no","type":"server_error","code":null}}`)
}

func (s *scripted) called(model, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[model+" "+name]
}

// truthConfig prices output alone, at $10 a million: a call of 100 tokens costs
// $0.001 at most. Its limits refill by less than one unit during a test.
func truthConfig(t *testing.T, s *scripted) string {
	t.Helper()
	return writeConfig(t, fmt.Sprintf(`
providers:
  bills:  {kind: openai, base_url: %[1]q}
  fair:   {kind: openai, base_url: %[1]q, bills_errors: false}
  hasty:  {kind: openai, base_url: %[1]q, timeout: 1s}
models:
  bills: {provider: bills, id: bills, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0", output: "10"}}
  fair:  {provider: fair, id: fair, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0", output: "10"}}
  hasty: {provider: hasty, id: hasty, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0", output: "10"}}
  spare: {provider: fair, id: spare, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0", output: "10"}}
features:
  bills:  {model: bills, fallback: spare, max_output_tokens: 100, quota: {capacity: 3, per: 366d}}
  fair:   {model: fair, fallback: spare, max_output_tokens: 100, quota: {capacity: 3, per: 366d}}
  hasty:  {model: hasty, max_output_tokens: 100, quota: {capacity: 3, per: 366d}}
tiers:
  user: {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 100,
         limits: {tokens: {capacity: 1000000, per: 366d}, spend: {usd: "1.00", per: 366d}}}
pools: {all: {usd: "2.00", per: 366d}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
`, s.url))
}

// spent is what the trailing hour cost, in micro-dollars.
func (d *dev) spent(t *testing.T) int64 {
	t.Helper()
	var view struct {
		Total string `json:"total_usd"`
	}
	if d.issuer == nil {
		d.get(t, "/dev/spend", &view)
	} else { // serve has no such route
		view.Total = d.ledger(t).Total.Cost.String()
	}
	dollars, ok := new(big.Rat).SetString(view.Total)
	check.Must(t, ok, "spent %q", view.Total)
	micros := dollars.Mul(dollars, big.NewRat(1_000_000, 1))
	check.Must(t, micros.IsInt(), "%s is no whole number of micro-dollars: the prices of this test give none", view.Total)
	return micros.Num().Int64()
}

// Whatever a provider answers, the ledger and the caller's dollars have what may have
// been billed, and the caller's tokens and quota what the caller got.
func TestWhatProvidersClaim(t *testing.T) {
	t.Parallel()
	for name, start := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t)
			whatProvidersClaim(t, s, start(t, truthConfig(t, s)))
		})
	}
}

func whatProvidersClaim(t *testing.T, s *scripted, d *dev) {
	const worst = 1000 // micro-dollars
	for i, row := range []struct {
		feature, script string
		stream          bool
		status          int
		cost            int64 // micro-dollars
		most            int64 // the same at most, where it is not exact; 0: it is
		quota           int   // answers taken
		tokens          int   // taken, input included; -1: some
		spare           bool  // the fallback was asked
		says            string
	}{
		// What may have been billed is not free, and nobody else is asked after it.
		{feature: "bills", script: "status 400", status: 502, cost: worst},
		{feature: "bills", script: "status 500", status: 502, cost: worst},
		{feature: "bills", script: "status 502", status: 502, cost: worst},
		{feature: "fair", script: "status 408", status: 502, cost: worst, says: "Nothing was taken from your quota"},
		{feature: "fair", script: "status 499", status: 502, cost: worst},
		{feature: "fair", script: "status 504", status: 502, cost: worst},
		{feature: "fair", script: "status 524", status: 502, cost: worst},
		{feature: "bills", script: "status 504", stream: true, status: 502, cost: worst},
		// What cannot have been is, and the fallback answers: 7 tokens of output, 27 in all.
		{feature: "fair", script: "status 500", status: 200, cost: 70, quota: 1, tokens: 27, spare: true},
		{feature: "fair", script: "status 502", status: 200, cost: 70, quota: 1, tokens: 27, spare: true},
		{feature: "bills", script: "status 429", status: 200, cost: 70, quota: 1, tokens: 27, spare: true},
		{feature: "bills", script: "status 503", status: 200, cost: 70, quota: 1, tokens: 27, spare: true},
		{feature: "bills", script: "status 529", status: 200, cost: 70, quota: 1, tokens: 27, spare: true},
		{feature: "bills", script: "status 401", status: 200, cost: 70, quota: 1, tokens: 27, spare: true},
		// The time is up: dollars at the worst, tokens as they came.
		{feature: "hasty", script: "endless", status: 504, cost: worst, tokens: -1},
		{feature: "hasty", script: "silence", status: 504, cost: worst},
		// The cap is ours.
		{feature: "bills", script: "over the cap", status: 200, cost: worst, most: 2 * worst, quota: 1, tokens: -1},
		{feature: "bills", script: "over the cap", stream: true, status: 200, cost: worst, most: 2 * worst, quota: 1, tokens: -1},
		// Usage that no model can have is none.
		{feature: "bills", script: "2^31", status: 200, cost: worst, quota: 1, tokens: -1},
		{feature: "bills", script: "10^12", status: 200, cost: worst, quota: 1, tokens: -1},
		{feature: "bills", script: "near 2^63", status: 200, cost: worst, quota: 1, tokens: -1},
		{feature: "bills", script: "near 2^63", stream: true, status: 200, cost: worst, quota: 1, tokens: -1},
		// A plausible one counts, also above what was reserved.
		{feature: "bills", script: "more than reserved", status: 200, cost: 400_000, quota: 1, tokens: 40_020},
		// A report is what was billed, whatever else displeases.
		{feature: "bills", script: "no finish", status: 502, cost: 70, tokens: 27},
		{feature: "bills", script: "broken tail", status: 200, cost: 70, quota: 1, tokens: 27},
		// Nothing was given.
		{feature: "bills", script: "reasoning", status: 200, cost: worst, tokens: 120, says: `"finish_reason":"length"`},
		{feature: "bills", script: "finish error", status: 502, cost: 70, tokens: 27},
		{feature: "bills", script: "finish network", status: 502, cost: 70, tokens: 27},
	} {
		t.Run(row.feature+" "+row.script, func(t *testing.T) {
			user := fmt.Sprintf("u%d", i)
			token := d.token(t, user)
			before, spares := d.spent(t), s.called("spare", row.script)
			a, err := d.ask(t.Context(), token, question{feature: row.feature, text: "<" + row.script + ">", most: 100, stream: row.stream})
			check.OK(t, err)
			check.That(t, a.status == row.status && strings.Contains(a.body, row.says), "%d %s, want %d with %q", a.status, a.body, row.status, row.says)
			cost := d.spent(t) - before
			check.That(t, cost >= row.cost && cost <= max(row.cost, row.most), "the ledger has %d micro-dollars, want %d", cost, row.cost)
			left := d.left(t, user)
			if took := 1_000_000 - left["spend"]; int64(took) != cost {
				t.Errorf("%d micro-dollars were taken of the caller's spending limit, the ledger has %d", took, cost)
			}
			check.Equal(t, 3-left[row.feature], row.quota, "answers were taken of the quota")
			if took := 1_000_000 - left["tokens"]; took != row.tokens && (row.tokens >= 0 || took < 10 || took > 300) {
				t.Errorf("%d tokens were taken, want %d", took, row.tokens)
			}
			check.Equal(t, s.called("spare", row.script) > spares, row.spare, "the fallback was asked")
		})
	}
	// Nobody is shut out by what a provider said.
	d.complete(t, d.token(t, "somebody"), question{feature: "bills", text: "<answer>", most: 100})
}

// Long answers that do not end in time close nothing for others.
func TestLongStreamsOpenNoBreaker(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	d := startDev(t, truthConfig(t, s))
	var all sync.WaitGroup
	for i := range 6 {
		token := d.token(t, fmt.Sprintf("reader%d", i))
		all.Go(func() {
			if a, err := d.ask(t.Context(), token, question{feature: "hasty", text: "<endless>", most: 100, stream: true}); err != nil || a.status != http.StatusOK {
				t.Errorf("%v: %d %s", err, a.status, a.body)
			}
		})
	}
	all.Wait()
	d.complete(t, d.token(t, "other"), question{feature: "hasty", text: "<answer>", most: 100})
}

// Calls that gave nothing take nothing, in whatever order they end.
func TestFailedCallsTogether(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	d := startDev(t, truthConfig(t, s))
	for _, order := range [][]string{{"first", "second"}, {"second", "first"}} {
		user := "u" + order[0]
		token := d.token(t, user)
		letGo, ended := map[string]func(){}, map[string]chan struct{}{}
		for _, word := range []string{"first", "second"} {
			mark := user + word
			arrived, release := s.hold(mark)
			letGo[word], ended[word] = release, make(chan struct{})
			go func() {
				defer close(ended[word])
				if a, err := d.ask(t.Context(), token, question{feature: "hasty", text: "<status 429>" + mark, most: 100}); err != nil || a.status != http.StatusBadGateway {
					t.Errorf("%v: %d %s", err, a.status, a.body)
				}
			}()
			select {
			case <-arrived:
			case <-time.After(patience):
				t.Fatal("the provider does not get the call")
			}
		}
		for _, word := range order {
			letGo[word]()
			<-ended[word]
		}
		if left := d.left(t, user); left["hasty"] != 3 || left["tokens"] != 1_000_000 || left["spend"] != 1_000_000 {
			t.Errorf("%s ended first: left %v", order[0], left)
		}
	}
}

// After a clear the first call's headers say what is left, and the last one of the
// quota is served at once.
func TestQuotaIsWholeAfterClear(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	d := startDev(t, truthConfig(t, s))
	token := d.token(t, "ann")
	ask := func() answer { return d.mustAsk(t, token, question{feature: "fair", text: "<answer>", most: 100}) }
	for range 3 {
		ask()
	}
	d.must(t, "clear-limit", "ann", "--type", "fair")
	for left := 2; left >= 0; left-- {
		a := ask()
		check.Must(t, a.status == http.StatusOK, "%d %s, with %d to be left", a.status, a.body, left)
		want := fmt.Sprintf(`"fair";r=%d`, left)
		check.That(t, strings.Contains(a.header.Get("RateLimit"), want), "RateLimit is %q, want %s", a.header.Get("RateLimit"), want)
	}
}

// A report beyond what was reserved puts a pool into debt. An administrator forgives
// that, and no more: the pool is empty then, not full.
func TestPoolDebtIsForgiven(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	d := startDev(t, truthConfig(t, s))
	token := d.token(t, "ann")
	for range 2 { // $0.40 each, of a burst of $0.50
		d.mustAsk(t, token, question{feature: "bills", text: "<more than reserved>", most: 100})
	}
	refused := func() {
		t.Helper()
		a := d.mustAsk(t, d.token(t, "ben"), question{feature: "fair", text: "<answer>", most: 100})
		if c, err := a.completion(); err != nil || a.status != http.StatusServiceUnavailable || c.Error.Code != "spend_ceiling_reached" {
			t.Errorf("%v: %d %s", err, a.status, a.body)
		}
	}
	refused()
	got := d.must(t, "limits", "pool:all")
	check.That(t, strings.Contains(got, "$0.300000"), "limits pool:all says %s", got)
	first := d.must(t, "clear-limit", "pool:all", "--reason", "a report that was wrong", "--json")
	check.That(t, strings.Contains(first, `"forgiven":300000`), "of a debt of $0.30 was forgiven: %s", first)
	refused() // empty: a year refills it
	again := d.must(t, "clear-limit", "pool:all", "--json")
	check.That(t, strings.Contains(again, `"forgiven":0`), "a second clearing forgave: %s", again)
}
