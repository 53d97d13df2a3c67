package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	serveKey     = "a-key-of-ann-that-nobody-can-guess"
	serveSecret  = "a-secret-of-thirty-two-characters" // all that configurations name
	serveWebhook = "E2E_WEBHOOK_URL"
)

var (
	modelAddress = regexp.MustCompile(`"https://model\.invalid/v1"`)
	authSection  = regexp.MustCompile(`(?m)^auth:.*\n`)
	planClaim    = regexp.MustCompile(`plan_claim: \w+`)
)

// startServe starts `tokenfuse serve` with a configuration on a store, a model and an
// issuer of its own, and waits until it serves. When the test ends it must stop cleanly.
func startServe(t *testing.T, config string, args ...string) *dev {
	t.Helper()
	on, err := stage.New(t.Context(), stage.Options{Limits: "tokenfuse-limits", Spend: "tokenfuse-spend", Upstream: upstream.Options{PerToken: time.Millisecond}})
	check.OK(t, err)
	t.Cleanup(on.Close)
	read, err := os.ReadFile(config)
	check.OK(t, err)
	// What dev puts in its place by itself.
	text := modelAddress.ReplaceAllString(string(read), `"`+on.ModelURL()+`"`)
	plans := planClaim.FindString(text)
	text = authSection.ReplaceAllString(text, "")
	if strings.Contains(text, " user:") { // who sign in
		text += fmt.Sprintf("\nauth: {issuer: %q, audience: test, jwks_url: %q, %s}\n", on.URL, on.KeysURL(), plans)
	}
	text += "\nadmin: {keys: {ann: [{env: E2E_ADMIN_KEY}]}}\n"
	cmd := exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--config", writeConfig(t, text)}, args...)...)
	cmd.Env = append(awsEnv("any", "any"), "AWS_ENDPOINT_URL_DYNAMODB="+on.Store, "E2E_NO_SUCH_KEY="+serveSecret, "E2E_ADMIN_KEY="+serveKey)
	if url := os.Getenv(serveWebhook); url != "" {
		cmd.Env = append(cmd.Env, serveWebhook+"="+url)
	}
	d := follow(t, cmd)
	d.store, d.issuer = on.Store, on.Issuer
	return d
}

// ledger is what the store has of the trailing hour.
func (d *dev) ledger(t *testing.T) ledger.Summary {
	t.Helper()
	events, err := ledger.New(engine.Client(d.store), ledger.Options{Table: "tokenfuse-spend", ReadOnly: true})
	check.OK(t, err)
	sum, err := events.Sum(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Minute))
	check.OK(t, err)
	return sum
}

// ways are those in which the functions run.
var ways = map[string]func(*testing.T, string, ...string) *dev{"dev": startDev, "serve": startServe}

// eachWay runs a test against dev, which is as the functions behind API Gateway are, and
// against serve.
func eachWay(t *testing.T, config string, test func(*testing.T, *dev)) {
	t.Helper()
	for name, start := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, config))
		})
	}
}

// A stop in the middle of things loses no settle: calls that end in time are whole, those
// that do not are ended, and either way the store has what each came to.
func TestServeStops(t *testing.T) {
	t.Parallel()
	const each, worst = 25, 1000 // micro-dollars
	s := newScripted(t)
	d := startServe(t, truthConfig(t, s), "--drain", "1500ms")
	var ended sync.WaitGroup
	var err error
	var letGo []func()
	answers := make([]answer, each)
	endless := make([]*http.Response, each)
	for i := range each {
		arrived, release := s.hold(fmt.Sprintf("word%d", i))
		letGo = append(letGo, release)
		token := d.token(t, fmt.Sprintf("waits%d", i))
		ended.Go(func() {
			a, err := d.ask(t.Context(), token, question{feature: "bills", text: fmt.Sprintf("<answer>word%d", i), most: 100})
			if err != nil {
				t.Error(err)
			}
			answers[i] = a
		})
		<-arrived
		if endless[i], err = d.open(t.Context(), d.token(t, fmt.Sprintf("reads%d", i)), question{feature: "bills", text: "<endless>", most: 100, stream: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := endless[i].Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	check.OK(t, d.cmd.Process.Signal(syscall.SIGTERM))
	await(t, "it takes no more calls", func() bool { return !serves(d.url) })
	for _, release := range letGo {
		release()
	}
	ended.Wait()
	for i := range each {
		if c, err := answers[i].completion(); err != nil || answers[i].status != http.StatusOK || c.Usage.Total != 27 {
			t.Errorf("a call in flight did not finish: %d %s", answers[i].status, answers[i].body)
		}
		a, err := read(endless[i], nil)
		if err != nil || !strings.Contains(a.body, `"code":"provider_error"`) && !strings.Contains(a.body, `"code":"provider_timeout"`) {
			t.Errorf("a stream that was ended does not say so: %v: %s", err, a.body)
		}
	}
	if code := d.exitCode(t); code != 0 {
		t.Errorf("exit code %d", code)
	}

	db := engine.Client(d.store)
	sum := d.ledger(t)
	const spent = each*worst + each*70
	if sum.Total.Calls != 2*each || int64(sum.Total.Cost) != spent*1_000_000 || sum.Total.Abandoned != 0 {
		t.Errorf("the ledger has %+v, want %d calls for %d micro-dollars", sum.Total, 2*each, spent)
	}
	buckets, err := bucket.New(db, bucket.Options{Table: "tokenfuse-limits", LongestPeriod: 367 * 24 * time.Hour})
	check.OK(t, err)
	tokens, spend := bucket.Limit{Name: "tokens", Capacity: 1_000_000, Period: 366 * 24 * time.Hour}, bucket.Limit{Name: "spend", Capacity: 1_000_000_000_000, Period: 366 * 24 * time.Hour}
	for i := range each {
		for who, took := range map[string][3]int64{"user#waits": {27, 27, 70}, "user#reads": {1, 100, worst}} {
			state, err := buckets.Peek(t.Context(), fmt.Sprintf("%s%d", who, i))
			check.OK(t, err)
			used, cost := tokens.Capacity-state.Limit(tokens).Remaining, (spend.Capacity-state.Limit(spend).Remaining+999_999)/1_000_000 // it refills meanwhile, by less
			// What was seen of a stream is more than nothing, and less than the worst case of 111.
			if len(state.Holds) != 0 || used < took[0] || used > took[1] || cost != took[2] {
				t.Errorf("%s%d: %d open, %d tokens and %d micro-dollars taken, want %v", who, i, len(state.Holds), used, cost, took)
			}
		}
	}
	pool, err := buckets.NewPool("pool#all", 2_000_000_000_000, 366*24*time.Hour, bucket.PoolOptions{})
	check.OK(t, err)
	used, err := pool.Refresh(t.Context())
	if got := used * float64(pool.Burst()) / 1e6; err != nil || got < spent-1 || got > spent+10 {
		t.Errorf("the pool has %.1f micro-dollars committed, want the %d that were spent: %v", got, spent, err)
	}
}

// Callers are told apart by what a trusted proxy says, administrators by their keys, and
// people are paged without SNS.
func TestServe(t *testing.T) {
	pages := make(chan answer, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		pages <- answer{header: r.Header, body: string(body)}
	}))
	defer receiver.Close()
	t.Setenv(serveWebhook, receiver.URL+"/services/hidden")
	d := startServe(t, writeConfig(t, `
providers: {main: {kind: openai, base_url: "https://model.invalid/v1"}}
models: {small: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}}}
features: {ask: {model: small, max_output_tokens: 100}}
tiers: {anonymous: {max_input_tokens: 200, max_output_tokens: 100, limits: {tokens: {capacity: 1000, per: 100d}}}}
fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}
alarm: {threshold_usd: "0.000001", webhook: {url: {env: E2E_WEBHOOK_URL}, secret: {env: E2E_ADMIN_KEY}}}
`), "--trusted-proxies", "127.0.0.1,192.0.2.0/24", "--alarm-every", "100ms", "--metrics", "emf",
		"--create-tables", "--limits-table", "made-limits", "--spend-table", "made-spend")

	from := func(forwarded ...string) (remaining int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/limits", nil)
		check.OK(t, err)
		req.Header["X-Forwarded-For"] = forwarded
		a, err := read(do(req, ""))
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("%v: %d %s", err, a.status, a.body)
		}
		var view struct {
			Limits []struct {
				Name      string
				Remaining int
			}
		}
		check.OK(t, json.Unmarshal([]byte(a.body), &view))
		for _, l := range view.Limits {
			if l.Name == "network_tokens" || l.Name == "tokens" {
				return l.Remaining
			}
		}
		t.Fatalf("no limit: %s", a.body)
		return 0
	}
	full := from("203.0.113.9")
	d.complete(t, "", question{feature: "ask", text: "Hi", most: 10}) // by the proxy itself
	if got := from("203.0.113.9"); got != full {
		t.Errorf("%d of %d are left to somebody else", got, full)
	}
	if own, forged := from(), from("203.0.113.9, 127.0.0.1"); own >= full || forged != full {
		t.Errorf("%d are left to the proxy, %d to who came through two of them", own, forged)
	}
	if forged := from("203.0.113.9", "127.0.0.1, 192.0.2.1"); forged != full {
		t.Errorf("%d are left, of two lines", forged)
	}

	// The page: of what this cost, by who has the secret.
	page := <-pages
	mac := hmac.New(sha256.New, []byte(serveKey))
	fmt.Fprintf(mac, "v1:%s:%s", page.header.Get("X-Tokenfuse-Timestamp"), page.body)
	var said struct{ Text string }
	if err := json.Unmarshal([]byte(page.body), &said); err != nil || !strings.Contains(said.Text, "Spending is above its threshold.") ||
		page.header.Get("X-Tokenfuse-Signature") != "v1="+hex.EncodeToString(mac.Sum(nil)) || page.header.Get("X-Tokenfuse-Event") != "opened" {
		t.Errorf("the page is %v %s", page.header, page.body)
	}

	for path, status := range map[string]int{d.url + "/admin/status": 404, d.adminURL + "/admin/status": 403, d.adminURL + "/v1/limits": 404,
		d.url + "/healthz": 200, d.url + "/readyz": 200, d.adminURL + "/readyz": 200} {
		a, err := read(client.Get(path))
		if err != nil || a.status != status {
			t.Errorf("%s: %d, want %d: %v", path, a.status, status, err)
		}
	}
	command := func(key string, args ...string) result {
		return run(t, append(awsEnv("", ""), "TOKENFUSE_ADMIN_KEY="+key, "TOKENFUSE_ENDPOINT="+d.adminURL), binary, args...)
	}
	if got := command(serveKey, "fuse", "set", "open", "--reason", "a drill"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := command(serveKey, "audit"); got.code != 0 || !strings.Contains(got.stdout, "key:ann") {
		t.Errorf("%+v", got)
	}
	if got := command(serveKey+"x", "status"); got.code != 1 || !strings.Contains(got.stderr, "no key of an administrator") {
		t.Errorf("%+v", got)
	}
	await(t, "metrics are on standard output", func() bool {
		return strings.Contains(d.output(), `"SettledUSD"`) && strings.Contains(d.output(), `"TrailingHourDollars"`)
	})
	if out := d.output(); strings.Contains(out, serveKey) || strings.Contains(out, "hidden") || strings.Contains(out, "203.0.113") {
		t.Errorf("a secret or an address is in the log")
	}
}

// With a certificate it speaks TLS to callers, and says so where its address is told.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	like := httptest.NewTLSServer(nil) // for its certificate
	defer like.Close()
	pair, dir := like.TLS.Certificates[0], t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	check.OK(t, err)
	files := map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "key": {Type: "PRIVATE KEY", Bytes: key}}
	args := []string{"--public-url", "https://ai.example.com"}
	for name, block := range files {
		file := filepath.Join(dir, name)
		check.OK(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
		args = append(args, "--tls-"+name, file)
	}
	d := startServe(t, testConfig(t, 1000), args...)
	a, err := read(like.Client().Get(strings.Replace(d.url, "http:", "https:", 1) + "/v1/nothing"))
	check.OK(t, err)
	check.That(t, a.status == http.StatusNotFound && strings.Contains(a.body, "https://ai.example.com/v1/chat/completions"), "%d %s", a.status, a.body)
}
