package lambda

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// timeout is of invocations whose deadline does not matter.
const timeout = 2 * time.Minute

func (g *rig) ask(f *runtimeapi.Function, token, body string, d time.Duration) *runtimeapi.Invocation {
	g.t.Helper()
	return f.Invoke(event(g.t, "stage_prefix", "POST", "/v1/chat/completions", token, body), d)
}

// slowSettles makes the writes that settle slow: who ends an answer before its settle
// is seen to do so.
func slowSettles(g *rig) {
	g.onStore = func(body string) {
		if strings.Contains(body, "REMOVE") || strings.Contains(body, "TransactWrite") || strings.Contains(body, g.stage.Spend) {
			time.Sleep(300 * time.Millisecond)
		}
	}
}

// checkSettled looks into the store, at the moment when an answer has ended.
func (g *rig) checkSettled(key string, tokens int64) {
	g.t.Helper()
	state, spent := g.peek(key), g.spent()
	check.That(g.t, state.InFlight == 0 && len(state.Holds) == 0, "at the end of the answer %d calls are open", state.InFlight)
	n := used(state)
	check.That(g.t, n == tokens, "at the end of the answer %d tokens are used; %d were", n, tokens)
	_, billed := g.stage.Upstream.Totals()
	cost := price.Pico(billed.Input*400_000 + billed.Output*1_600_000)
	check.That(g.t, spent.Total.Calls == 1 && spent.Total.Cost == cost, "at the end of the answer the ledger has %+v; the model billed $%s", spent.Total, cost)
}

func TestBuffered(t *testing.T) {
	t.Parallel()
	g := newRig(t, slowSettles)
	f := g.warm("generate")
	i := g.ask(f, g.token("ann"), chat("ask", question, false), timeout)
	r := open(t, i)
	body := r.rest(t)
	c := decode(t, body)
	g.checkSettled("user#ann", c.Usage.Total)
	check.That(t, r.status == 200 && c.Object == "chat.completion" && len(c.Choices) == 1 && c.Choices[0].Message.Content != "" && c.Usage.Total != 0,
		"%d %s", r.status, body)
	check.That(t, strings.HasPrefix(r.prelude, `{"statusCode":200,"multiValueHeaders":{`), "prelude %s", r.prelude)
	h := r.header
	check.That(t, h.Get("Content-Type") == "application/json" && h.Get("Cache-Control") == "no-store" && h.Get("X-Request-Id") != "" && h.Get("RateLimit") != "" && h.Get("X-Ratelimit-Limit-Tokens") == "20000" && h.Get("X-Max-Output-Tokens") == "400",
		"headers %v", h)
	if r.Error != nil {
		t.Error(r.Error)
	}
}

// Vectors of many texts, some megabytes of them, come whole, and after the settle.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	g := newRig(t, slowSettles)
	f := g.warm("generate")
	texts, _ := json.Marshal(slices.Repeat([]string{"A token bucket."}, 200))
	r := open(t, f.Invoke(event(t, "stage_prefix", "POST", "/v1/embeddings", g.token("ann"), `{"model":"search","input":`+string(texts)+`}`), timeout))
	var got struct {
		Data []struct {
			Index     int
			Embedding []float32
		}
		Usage struct {
			Total int64 `json:"total_tokens"`
		}
	}
	check.OK(t, json.Unmarshal([]byte(r.rest(t)), &got))
	g.checkSettled("user#ann", got.Usage.Total)
	last := got.Data[len(got.Data)-1]
	check.That(t, r.status == 200 && len(got.Data) == 200 && last.Index == 199 && len(last.Embedding) == 1536 && got.Usage.Total == 200*4 && r.header.Get("RateLimit") != "", "%d, %d vectors, %+v", r.status, len(got.Data), got.Usage)
}

// The first words reach the caller while the model still thinks about the last.
func TestStreamed(t *testing.T) {
	t.Parallel()
	var words atomic.Int64
	goOn := make(chan struct{})
	g := newRig(t, slowSettles, func(g *rig) {
		g.onModel = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(&pausing{ResponseWriter: w, written: &words, after: 4, until: goOn}, r)
			})
		}
	})
	f := g.warm("generate")
	i := g.ask(f, g.token("ann"), chat("ask", question, true), timeout)
	r := open(t, i)
	check.Must(t, r.status == 200 && strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream"), "%d %v", r.status, r.header)
	var content string
	for content == "" {
		content = decode(t, r.event(t)).Choices[0].Delta.Content
	}
	before := words.Load()
	state := g.peek("user#ann")
	check.That(t, state.InFlight == 1, "while the answer arrives %d calls are open", state.InFlight)
	close(goOn)
	var events []string
	for !strings.HasSuffix(strings.Join(events, ""), "[DONE]") {
		events = append(events, r.event(t))
	}
	check.Equal(t, r.rest(t), "", "after [DONE]")
	usage := decode(t, events[len(events)-2]).Usage
	g.checkSettled("user#ann", usage.Total)
	check.That(t, before <= 4 && words.Load() > before, "the first chunk came when the model had written %d of %d parts", before, words.Load())
	finish := decode(t, events[len(events)-3])
	if len(finish.Choices) != 1 || finish.Choices[0].FinishReason == nil || *finish.Choices[0].FinishReason != "stop" || usage.Total == 0 {
		t.Errorf("the end is %q", events[len(events)-3:])
	}
	if r.Error != nil {
		t.Error(r.Error)
	}
}

// pausing stops a response after some writes until it may go on.
type pausing struct {
	http.ResponseWriter
	written *atomic.Int64
	after   int64
	until   chan struct{}
}

func (p *pausing) Write(b []byte) (int, error) {
	if p.written.Load() == p.after {
		<-p.until
	}
	p.written.Add(1)
	return p.ResponseWriter.Write(b)
}

func (p *pausing) Unwrap() http.ResponseWriter { return p.ResponseWriter }
func (p *pausing) Flush()                      { _ = http.NewResponseController(p.ResponseWriter).Flush() }

// One process takes one event after the other, whatever became of the last.
func TestWarm(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	f := g.warm("generate")
	ann := g.token("ann")
	for n, step := range []struct {
		token, body string
		status      int
		code        string
	}{
		{ann, chat("ask", question, false), 200, ""},
		{ann, chat("ask", question, true), 200, ""},
		{"", chat("ask", question, false), 200, ""},
		{ann, chat("ask", "[[fail:500]]", false), 502, "provider_error"},
		{ann, `{"model":"ask","messages":[]}`, 400, "invalid_value"},
		{"no-token", chat("ask", question, false), 401, "invalid_token"},
		{"", chat("cv", question, false), 403, "feature_not_allowed"},
		{ann, chat("cv", question, true), 200, ""},
		{ann, chat("cv", question, true), 429, "insufficient_quota"},
		{ann, chat("ask", "[[fail:cut]]", false), 502, "provider_error"},
		{ann, chat("ask", question, false), 200, ""},
	} {
		a := whole(t, g.ask(f, step.token, step.body, timeout))
		if step.code != "" {
			a.refused(t, step.status, step.code)
		} else if a.status != step.status {
			t.Errorf("step %d: %d %s", n, a.status, a.body)
		}
	}
	state := g.peek("user#ann")
	check.That(t, state.InFlight == 0, "%d calls are open", state.InFlight)
	logged(t, f)
}

// Slashes do not count, and who asks elsewhere is told where to go, stage and all.
func TestPaths(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	f := g.warm("generate")
	for _, path := range []string{"/v1/models/", "//v1/models", "/v1//models/ask/"} {
		a := whole(t, f.Invoke(event(t, "stage_prefix", "GET", path, "", ""), timeout))
		check.That(t, a.status == 200 && strings.Contains(a.body, `"id":"ask"`), "%s: %d %s", path, a.status, a.body)
	}
	for _, path := range []string{"/models", "//chat/completions/", "/v1/files"} {
		a := whole(t, f.Invoke(event(t, "stage_prefix", "POST", path, "", "{}"), timeout))
		if a.refused(t, 404, "not_found"); !strings.Contains(a.body, "is https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com/prod/v1.") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// What is no request of API Gateway does no harm either.
func TestStrangeEvents(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	f := g.warm("generate")
	for _, raw := range []string{`{}`, `null`, `{"httpMethod":"POST","path":"/v1/chat/completions","body":"!","isBase64Encoded":true}`} {
		a := whole(t, f.Invoke([]byte(raw), timeout))
		check.That(t, a.status == 400 && decode(t, a.body).Error != nil, "%s: %d %s", raw, a.status, a.body)
	}
	for _, raw := range []string{`"warm-up"`, `[]`, `{"httpMethod":7}`} {
		answer, err := f.Invoke([]byte(raw), timeout).Answer(within(t))
		check.OK(t, err)
		check.That(t, answer.Error != nil && answer.Error.Message != "", "%s: %+v", raw, answer)
	}
	if a := whole(t, g.ask(f, "", chat("ask", question, false), timeout)); a.status != 200 {
		t.Errorf("after them: %d %s", a.status, a.body)
	}
}

// A model that is slower than the invocation may last is given up in time to settle.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			f := g.warm("generate")
			whole(t, g.ask(f, g.token("bob"), chat("ask", question, false), timeout)) // the keys are there
			i := g.ask(f, g.token("ann"), chat("ask", "[[fail:timeout]]", stream), 8*time.Second)
			r := open(t, i)
			a := answered{r.status, r.header, r.rest(t)}
			state := g.peek("user#ann")
			left := time.Until(r.Deadline)
			check.That(t, left >= time.Second, "the answer ended %v before the deadline", left)
			a.refused(t, 504, "provider_timeout")
			if state.InFlight != 0 || used(state) != 0 {
				t.Errorf("%d calls are open, %d tokens used", state.InFlight, used(state))
			}
			if calls, _ := g.stage.Upstream.Totals(); calls != 2 {
				t.Errorf("%d calls", calls)
			}
		})
	}
}

// Without time to settle no call is made.
func TestTooLateToCall(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := whole(t, g.ask(g.warm("generate"), "", chat("ask", question, false), 4*time.Second))
	a.refused(t, 504, "provider_timeout")
	if calls, _ := g.stage.Upstream.Totals(); calls != 0 {
		t.Errorf("%d calls", calls)
	}
}

// floodCap is an output cap within which more can be said than the buffers on the way
// to a reader hold, which are some 4 MB: each token is an event of 190 bytes.
const floodCap = 40_000

// flood is a model that says as much, so that every buffer on the way to a reader who
// has stopped reading is full.
func flood(g *rig) {
	g.edit = func(yaml string) string {
		return strings.NewReplacer(
			"max_output_tokens: 400}", fmt.Sprintf("max_output_tokens: %d}", floodCap),
			"user:      {max_input_tokens: 1000, max_output_tokens: 400", fmt.Sprintf("user:      {max_input_tokens: 1000, max_output_tokens: %d", floodCap),
			"capacity: 20000,", "capacity: 100000,").Replace(yaml)
	}
	g.onModel = func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range floodCap - 100 {
				if _, err := io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":" word"}}]}`+"\n\n"); err != nil {
					return
				}
			}
			<-r.Context().Done()
		})
	}
}

// A reader that stalls holds the process up until shortly before the deadline. Then
// the call is settled, at its worst, and the answer ends in an error.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	g := newRig(t, flood)
	f := g.warm("generate")
	i := g.ask(f, g.token("ann"), chat("ask", question, true), 15*time.Second)
	r := open(t, i)
	r.event(t)
	for g.peek("user#ann").InFlight > 0 {
		check.Must(t, !time.Now().After(r.Deadline), "not settled by the deadline")
		time.Sleep(50 * time.Millisecond)
	}
	r.rest(t)
	check.That(t, r.Error != nil && r.Error.Message != "", "the answer ended as if it were whole: %v", r.Error)
	if spent := g.spent(); spent.Total.Calls != 1 || used(g.peek("user#ann")) < 400 {
		t.Errorf("the ledger has %+v, %d tokens are used", spent.Total, used(g.peek("user#ann")))
	}
	<-i.Done()
}

// If the runtime API breaks the connection, the process settles before it ends.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	g := newRig(t, slowSettles, flood)
	f := g.warm("generate")
	r := open(t, g.ask(f, g.token("ann"), chat("ask", question, true), timeout))
	r.event(t)
	r.Body.Close()
	select {
	case <-f.Exited():
	case <-within(t).Done():
		t.Fatal("the process lives on")
	}
	state := g.peek("user#ann")
	if state.InFlight != 0 || used(state) < 400 || g.spent().Total.Calls != 1 {
		t.Errorf("%d calls are open, %d tokens used", state.InFlight, used(state))
	}
}

// Lambda sends SIGTERM only to functions with extensions. Without a call there is
// nothing to do; a call that it meets is as one whose process died: charged at its
// worst until its hold expires, and nobody else is kept waiting.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ends := func(f *runtimeapi.Function) {
		t.Helper()
		check.OK(t, f.Signal(syscall.SIGTERM))
		select {
		case <-f.Exited():
		case <-within(t).Done():
			t.Fatal("the process lives on")
		}
		if s, ok := f.State().Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGTERM {
			t.Errorf("it ended by itself: %v", f.State())
		}
	}
	ends(g.warm("generate"))

	f := g.warm("generate")
	g.ask(f, g.token("ann"), chat("ask", "[[fail:timeout]]", false), timeout)
	for len(g.stage.Upstream.Calls()) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	ends(f)
	if state := g.peek("user#ann"); len(state.Holds) != 1 || used(state) < 400 {
		t.Errorf("%d holds, %d tokens used", len(state.Holds), used(state))
	}
	a := whole(t, g.ask(g.warm("generate"), g.token("ann"), chat("ask", question, false), timeout))
	check.That(t, a.status == 200, "the next call: %d %s", a.status, a.body)
}

// A store that is down neither keeps the function from starting nor lets calls pass.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	f := g.warm("generate", "AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:1")
	begin := time.Now()
	a := whole(t, g.ask(f, "", chat("ask", question, false), timeout))
	a.refused(t, 503, "store_unavailable")
	took := time.Since(begin)
	check.That(t, took <= 20*time.Second, "after %v", took)
	if calls, _ := g.stage.Upstream.Totals(); calls != 0 {
		t.Errorf("%d calls", calls)
	}
}

// Every shape of event that API Gateway makes of requests for these routes gets its
// answer, as it is.
func TestEvents(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	f := g.warm("generate")
	for fixture, want := range map[string]struct {
		status int
		code   string
	}{
		"stage_prefix":  {400, "invalid_value"},
		"custom_domain": {200, ""},
		"multi_value":   {200, ""},
		"single_valued": {400, "invalid_value"},
		"base64":        {415, "unsupported_media_type"},
		"base64_json":   {404, "model_not_found"},
		"encoded_path":  {404, "not_found"},
		"decoded_path":  {404, "not_found"},
		"null_headers":  {415, "unsupported_media_type"}, // a test in the console
		"preflight":     {403, "origin_not_allowed"},     // no origins are configured here
		"cloudfront":    {400, "invalid_value"},
		"ipv6":          {400, "invalid_value"},
		"iam":           {404, "not_found"},
		"bare_context":  {401, "invalid_token"}, // nobody says where it is from
		"no_context":    {401, "invalid_token"},
	} {
		raw, err := os.ReadFile("../../internal/lambdahttp/testdata/" + fixture + ".json")
		check.OK(t, err)
		a := whole(t, f.Invoke(raw, timeout))
		if want.code != "" {
			t.Run(fixture, func(t *testing.T) { a.refused(t, want.status, want.code) })
		} else if a.status != want.status {
			t.Errorf("%s: %d %s", fixture, a.status, a.body)
		}
	}
	if calls, _ := g.stage.Upstream.Totals(); calls != 0 {
		t.Errorf("%d calls", calls)
	}
}
