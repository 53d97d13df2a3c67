package chatapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/server"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
	"github.com/tokenfuse/tokenfuse/testkit/stagetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if run := flag.Lookup("test.run").Value; *served && run.String() == "" {
		if err := run.Set(theContract()); err != nil {
			panic(err)
		}
	}
	os.Exit(enginetest.Main(m))
}

// served has the rig ask over the network, and runs the tests of what every caller sees.
var served = flag.Bool("served", false, "test the contract over the HTTP server of tokenfuse serve")

// theContract matches the tests of the contract's files.
func theContract() string {
	var names []string
	for _, part := range []string{"contract", "headers", "cors", "caps", "badinput", "chat"} {
		text, err := os.ReadFile(part + "_test.go")
		if err != nil {
			panic(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// testPolicy has a free tier of two users' worth: small figures, so that tests
// reach them.
const testPolicy = `
providers:
  main: {kind: openai, base_url: "UPSTREAM", timeout: 20s, bills_errors: false}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 1000000,
          price_per_mtok: {input: "0.40", cached_input: "0.10", output: "1.60"}}
features:
  docqa: {model: small, system: "You answer questions.", max_output_tokens: 800}
  open:  {model: small, max_output_tokens: 800, allow: [system, response_format]}
  cv:    {model: small, system: "You write CVs.", max_output_tokens: 2000, tiers: [user, pro], quota: {capacity: 3, per: 24h}}
tiers:
  anonymous: {max_input_chars: 2000, max_input_tokens: 2000, max_messages: 16, max_output_tokens: 400, max_in_flight: 4,
              limits: {tokens: {capacity: 5000, per: 1h}, requests: {capacity: 20, per: 1m}}}
  user:      {max_input_tokens: 6000, max_messages: 64, max_output_tokens: 4000, max_in_flight: 8,
              limits: {tokens: {capacity: 50000, per: 1h}, requests: {capacity: 60, per: 1m}, spend: {usd: "2.00", per: 24h}}}
  pro:       {max_input_tokens: 60000, max_messages: 256, max_output_tokens: 8000, max_in_flight: 16,
              limits: {tokens: {capacity: 400000, per: 1h}, requests: {capacity: 120, per: 1m}, spend: {usd: "10.00", per: 24h}}}
auth: {issuer: "ISSUER", audience: "test", jwks_url: "ISSUER/dev/jwks.json", plan_claim: plan}
cors: {origins: ["https://app.example.com"]}
fingerprint: {secret: {env: TEST_SECRET}}
`

// rig is a handler on real parts: the engine behind a network that can fail, a
// model that speaks the wire format, an issuer of tokens.
type rig struct {
	t         *testing.T
	handler   *Handler
	upstream  *upstream.Upstream
	issuer    *issuer.Issuer
	net       *faults.Transport // between the handler and the store
	sends     atomic.Int64      // to the store
	fuseFails atomic.Bool       // reads of the fuse go through net, too
	log       *buffer.Synced
	policy    *policy.Policy
	bucket    bucket.Options
	silence   time.Duration
	sent      *buffer.Synced // bodies of the requests to the provider, one a line
	frozen    atomic.Int64   // where the handler's clock stands still, in µs; 0: it runs
	address   string         // of the server; "": the handler is asked without one
	calls     sync.Map       // of channels that are closed when a call has ended, by callHeader
}

// now is the handler's clock.
func (g *rig) now() time.Time {
	if at := g.frozen.Load(); at != 0 {
		return time.UnixMicro(at)
	}
	return time.Now()
}

// freeze stops the handler's clock, or moves a stopped one on by d.
func (g *rig) freeze(d time.Duration) { g.frozen.Store(g.now().Add(d).UnixMicro()) }

// testSecret stands for every secret that the policy names, but those of backends.
const testSecret = "a-secret-of-some-length"

// backendSecret is the secret of a backend, by the name of its variable.
func backendSecret(env string) string { return "the+secret/of=" + env }

func secretOf(_ context.Context, s policy.Secret) (string, error) {
	if strings.HasPrefix(s.Env, "BACKEND_") {
		return backendSecret(s.Env), nil
	}
	return testSecret, nil
}

// setup is what a rig may be given beside its policy.
type setup struct {
	upstream upstream.Options
	bucket   bucket.Options
	silence  time.Duration
	model    func(upstream http.Handler) http.Handler // what the provider is; nil: the upstream
}

// newRig makes a rig; edit may change the policy's text.
func newRig(t *testing.T, edit ...func(yaml string) string) *rig {
	t.Helper()
	return setup{}.newRig(t, edit...)
}

func (s setup) newRig(t *testing.T, edit ...func(yaml string) string) *rig {
	t.Helper()
	if b := s.bucket; b.AttemptTimeout+b.ReserveTimeout+b.SettleTimeout == 0 {
		// Patience with a busy machine: only some tests are about slow stores.
		s.bucket = bucket.Options{AttemptTimeout: 20 * time.Second, ReserveTimeout: time.Minute, SettleTimeout: time.Minute}
	}
	g := &rig{t: t, log: &buffer.Synced{}, sent: &buffer.Synced{}, bucket: s.bucket, silence: s.silence}
	on := stagetest.New(t, stage.Options{Upstream: s.upstream, Model: func(model http.Handler) http.Handler {
		if s.model != nil {
			model = s.model(model)
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			_, _ = g.sent.Write(append(body, '\n'))
			r.Body = io.NopCloser(bytes.NewReader(body))
			model.ServeHTTP(w, r)
		})
	}})
	g.upstream, g.issuer, g.bucket.Table = on.Upstream, on.Issuer, on.Limits

	var err error
	yaml := strings.NewReplacer("UPSTREAM", on.ModelURL(), "ISSUER", on.URL).Replace(testPolicy)
	for _, f := range edit {
		yaml = f(yaml)
	}
	if g.policy, err = policy.Parse([]byte(yaml)); err != nil {
		t.Fatal(err)
	}
	g.net = &faults.Transport{}
	counted := roundTrip(func(r *http.Request) (*http.Response, error) {
		// The fuse is read beside everything else, when it is due: tests of other
		// things neither count nor break that.
		if r.Header.Get("X-Amz-Target") == "DynamoDB_20120810.GetItem" && !g.fuseFails.Load() {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`{"S":"fuse"}`)) {
				return http.DefaultTransport.RoundTrip(r)
			}
		}
		g.sends.Add(1)
		return g.net.RoundTrip(r)
	})
	g.handler = g.process(on.DynamoDB(func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: counted} }))
	if *served {
		g.serve()
	}
	return g
}

// serve puts the server of `tokenfuse serve` before the rig's handler, and the test's
// client where a proxy would be.
func (g *rig) serve() {
	g.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(g.t, err)
	proxies, err := server.ParseProxies([]string{"127.0.0.1"})
	check.OK(g.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(ctx, listener, server.Options{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ended, _ := g.calls.Load(r.Header.Get(callHeader))
				defer close(ended.(chan struct{}))
				g.handler.ServeHTTP(w, r)
			}),
			Ready: &server.Readiness{}, Proxies: proxies, AnswerTime: time.Minute, Drain: time.Minute, SettleTime: time.Minute, Stopped: ErrStopped, Log: slog.New(slog.DiscardHandler)})
	}()
	g.t.Cleanup(func() {
		stop()
		check.OK(g.t, <-ended)
	})
	g.address = listener.Addr().String()
}

// process makes a handler of the rig's parts, as another process would.
func (g *rig) process(db *dynamodb.Client) *Handler {
	g.t.Helper()
	h, err := Build(context.Background(), Parts{
		Policy: g.policy, DynamoDB: db, Bucket: g.bucket,
		Secret:  secretOf,
		Log:     environ.NewLog(g.log),
		Now:     g.now,
		Silence: g.silence,
	})
	check.OK(g.t, err)
	return h
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// offer is a feature as it is open to users.
func (g *rig) offer(feature string) *admission.Offer {
	g.t.Helper()
	o, refusal := g.handler.admission.Offer(admission.Caller{Kind: limits.User, Tier: g.policy.Tiers[policy.User]}, feature)
	if refusal != nil {
		g.t.Fatal(refusal.Kind)
	}
	return o
}

// token makes a user's bearer token.
func (g *rig) token(sub, plan string) string {
	g.t.Helper()
	token, err := g.issuer.Token(issuer.Claims{Subject: sub, Plan: plan, TTL: time.Hour})
	check.OK(g.t, err)
	return token
}

// request makes a request as the handler gets it; token "" is anonymous.
func (g *rig) request(method, path, token, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "203.0.113.7:4711"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   string
}

func (g *rig) do(r *http.Request) answer {
	g.t.Helper()
	if g.address != "" {
		return g.send(r)
	}
	return g.direct(r)
}

// direct asks the handler without a server.
func (g *rig) direct(r *http.Request) answer {
	g.t.Helper()
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	return g.read(w.Result())
}

func (g *rig) read(res *http.Response) answer {
	g.t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	check.OK(g.t, err)
	return answer{res.StatusCode, res.Header, string(body)}
}

// callHeader names a call between send and serve.
const callHeader = "X-Test-Call"

// send sends a request to the server as the proxy of whoever asks, and waits for the end of
// the call, which settles. A caller who leaves hears nothing.
func (g *rig) send(r *http.Request) answer {
	g.t.Helper()
	out, id, ended := r.Clone(r.Context()), rand.Text(), make(chan struct{})
	g.calls.Store(id, ended)
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", g.address, ""
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr // an address alone
	}
	out.Header.Add("X-Forwarded-For", from)
	out.Header.Set(callHeader, id)
	if out.Header.Get("X-Forwarded-Proto") == "" {
		out.Header.Set("X-Forwarded-Proto", "https")
	}
	res, err := http.DefaultTransport.RoundTrip(out)
	if r.Method == http.MethodHead || err != nil && strings.Contains(err.Error(), "invalid header field") {
		return g.direct(r) // has no body to look at, or is what no client can send
	}
	if r.Context().Err() != nil {
		<-ended
		return answer{}
	}
	check.OK(g.t, err)
	a := g.read(res)
	<-ended
	for _, name := range []string{"Date", "Content-Length", "X-Accel-Buffering"} { // the server's own
		a.header.Del(name)
	}
	return a
}

// chat posts a chat completion.
func (g *rig) chat(token, body string) answer {
	g.t.Helper()
	return g.do(g.request(http.MethodPost, "/v1/chat/completions", token, body))
}

// wireError is an error body as a client reads it.
type wireError struct {
	Message    string  `json:"message"`
	Type       string  `json:"type"`
	Param      *string `json:"param"`
	Code       string  `json:"code"`
	Limit      string  `json:"limit"`
	Unit       string  `json:"unit"`
	RetryAfter *int64  `json:"retry_after_seconds"`
	Requested  int64   `json:"requested"`
	Remaining  *int64  `json:"remaining"`
	Affordable *int64  `json:"affordable_max_tokens"`
	Upstream   *int    `json:"upstream_status"`
}

func (g *rig) wireError(a answer) wireError {
	g.t.Helper()
	var envelope struct{ Error wireError }
	err := json.Unmarshal([]byte(a.body), &envelope)
	check.Must(g.t, err == nil, "the body is no error envelope: %v: %s", err, a.body)
	return envelope.Error
}

// remaining reads what is left of the caller's limits, by /v1/limits.
func (g *rig) remaining(token string) map[string]int64 {
	g.t.Helper()
	a := g.do(g.request(http.MethodGet, "/v1/limits", token, ""))
	var view struct {
		Limits []struct {
			Name      string
			Remaining int64
		}
	}
	err := json.Unmarshal([]byte(a.body), &view)
	check.Must(g.t, err == nil && a.status == http.StatusOK, "limits: %d %s", a.status, a.body)
	left := map[string]int64{}
	for _, l := range view.Limits {
		left[l.Name] = l.Remaining
	}
	return left
}

// open is how many calls an identity has open, by the store.
func (g *rig) open(key string) int {
	g.t.Helper()
	state, err := g.handler.admission.Buckets.Peek(context.Background(), key)
	check.OK(g.t, err)
	return state.InFlight
}

// spendEvent is a spend event as the log has it.
type spendEvent struct {
	Reservation string
	Identity    string
	Tier        string
	Feature     string
	Model       string
	Input       int64
	Cached      int64 `json:"cached_input"`
	Output      int64
	Reasoning   int64
	Cost        price.Pico `json:"pico_dollars"`
	Outcome     ledger.Outcome
	Estimated   bool
}

// logged gives the lines of the log with a message.
func (g *rig) logged(message string) [][]byte {
	g.t.Helper()
	var lines [][]byte
	for _, line := range strings.Split(strings.TrimSpace(g.log.String()), "\n") {
		var head struct{ Msg string }
		err := json.Unmarshal([]byte(line), &head)
		check.Must(g.t, err == nil, "%v in the log line %q", err, line)
		if head.Msg == message {
			lines = append(lines, []byte(line))
		}
	}
	return lines
}

// reserved is how many tokens the last call that was admitted reserved, by the log.
func (g *rig) reserved() (tokens int64) {
	g.t.Helper()
	for _, line := range g.logged("request") {
		var l struct{ Reserved struct{ Tokens int64 } }
		check.OK(g.t, json.Unmarshal(line, &l))
		tokens = cmp.Or(l.Reserved.Tokens, tokens)
	}
	return tokens
}

func (g *rig) spendEvents() []spendEvent {
	g.t.Helper()
	var events []spendEvent
	for _, line := range g.logged("spend") {
		var l struct{ Event spendEvent }
		check.OK(g.t, json.Unmarshal(line, &l))
		events = append(events, l.Event)
	}
	return events
}

// await waits for what must come soon.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain: %s", what)
	}
}
