package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/local/stage"
)

// streams are open at once in one process, a caller each.
const streams = 1000

// servePolicy leaves room for all of them at once.
const servePolicy = `
providers: {main: {kind: openai, base_url: %q, timeout: 5m}}
models: {small: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "1", output: "1"}}}
features: {ask: {model: small, max_output_tokens: 400}}
tiers: {anonymous: {max_input_tokens: 1000, max_output_tokens: 400, limits: {tokens: {capacity: 10000, per: 1h}}}}
pools: {all: {usd: "1000.00", per: 1h}}
fingerprint: {secret: {env: BENCH_SECRET}}
`

// held is a model whose streams begin, and end when all are let go.
type held struct {
	letGo chan struct{}
}

func (h held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"Well, "},"finish_reason":null}]}`+"\n\n")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-h.letGo:
	case <-r.Context().Done():
		return
	}
	fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`+"\n\ndata: [DONE]\n\n")
}

// serving measures the memory of one process of `tokenfuse serve` that has many streams
// open, and that each of them ends whole and is settled when the process is told to stop.
func serving(ctx context.Context, l *lab) ([]table, error) {
	dir, err := os.MkdirTemp("", "tokenfuse-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	model := held{make(chan struct{})}
	on, err := stage.New(ctx, stage.Options{Store: l.engine.URL, Limits: "serve-limits", Spend: "serve-spend", Model: func(http.Handler) http.Handler { return model }})
	if err != nil {
		return nil, err
	}
	defer on.Close()
	config := filepath.Join(dir, "tokenfuse.yaml")
	if err := errors.Join(build(ctx, filepath.Join(dir, "tokenfuse"), "./cmd/tokenfuse"), os.WriteFile(config, fmt.Appendf(nil, servePolicy, on.ModelURL()), 0o600)); err != nil {
		return nil, err
	}
	s, err := startServing(ctx, filepath.Join(dir, "tokenfuse"), config, on)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.cmd.Process.Kill() }()

	atRest, err := s.memory(ctx)
	if err != nil {
		return nil, err
	}
	open, begun, err := s.open(ctx) //nolint:bodyclose // each is read to its end below
	if err != nil {
		return nil, err
	}
	loaded, err := s.memory(ctx)
	if err != nil {
		return nil, err
	}
	// The end comes while all of them are open.
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	close(model.letGo)
	whole := 0
	for _, res := range open {
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil && bytes.HasSuffix(text, []byte("data: [DONE]\n\n")) {
			whole++
		}
	}
	if err := s.cmd.Wait(); err != nil {
		return nil, err
	}
	events, err := ledger.New(on.DynamoDB(), ledger.Options{Table: on.Spend, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	sum, err := events.Sum(ctx, time.Now().Add(-time.Hour), time.Now().Add(time.Minute))
	if err != nil {
		return nil, err
	}
	memory := table{Title: "Memory of one process of `tokenfuse serve`, resident", Columns: []column{{"MB", 1}, {"KB a stream", 0}}}
	memory.add("at rest", atRest/1e3, 0)
	memory.add(fmt.Sprintf("%d streams at once", streams), loaded/1e3, (loaded-atRest)/streams)
	memory.expect(atMost, 256)
	ends := table{Title: "The same streams, when SIGTERM comes while all are open", Columns: []column{{"streams", 0}}}
	ends.add("answered to the end", float64(whole))
	ends.expect(exactly, streams)
	ends.add("in the ledger", float64(sum.Total.Calls))
	ends.expect(exactly, streams)
	waits := table{Title: "First text of each, 32 asking at a time (the model answers at once)", Columns: []column{{"ms", 1}}}
	waits.add("median", milliseconds(percentile(begun, 50)))
	waits.add("99 of 100", milliseconds(percentile(begun, 99)))
	return []table{memory, ends, waits}, nil
}

// server is a process of serve.
type server struct {
	cmd *exec.Cmd
	url string
}

func startServing(ctx context.Context, program, config string, on *stage.Stage) (*server, error) {
	cmd := exec.CommandContext(ctx, program, "serve", "--listen", "127.0.0.1:0", "--config", config, "--trusted-proxies", "127.0.0.1", "--drain", "1m")
	cmd.Env = append(os.Environ(), append(on.Environ(), "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any", "BENCH_SECRET=a-secret-of-this-bench-alone")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var said struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &said) == nil && said.Msg == "tokenfuse serves" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return &server{cmd, "http://" + said.Address}, nil
		}
	}
	return nil, fmt.Errorf("serve has ended: %w", cmd.Wait())
}

// memory is what the process has resident, in KB.
func (s *server) memory(ctx context.Context) (float64, error) {
	out, err := exec.CommandContext(ctx, "ps", "-o", "rss=", "-p", strconv.Itoa(s.cmd.Process.Pid)).Output()
	if err != nil {
		return 0, fmt.Errorf("ps: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// open opens all streams, and gives them with the time until the first text of each.
func (s *server) open(ctx context.Context) (open []*http.Response, begun []time.Duration, err error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	open, begun = make([]*http.Response, streams), make([]time.Duration, streams)
	errs := make([]error, streams)
	turn := make(chan struct{}, 32)
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			start := time.Now()
			open[i], errs[i] = s.ask(ctx, client, i) //nolint:bodyclose // by the caller
			begun[i] = time.Since(start)
		})
	}
	all.Wait()
	return open, begun, errors.Join(errs...)
}

// ask opens the stream of a caller of a network of its own.
func (s *server) ask(ctx context.Context, client *http.Client, caller int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions",
		strings.NewReader(`{"model":"ask","stream":true,"messages":[{"role":"user","content":"Is this a stream?"}]}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Forwarded-For", fmt.Sprintf("20.%d.%d.1", caller/250, caller%250))
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return nil, fmt.Errorf("status %d: %s", res.StatusCode, text)
	}
	_, err = res.Body.Read(make([]byte, 1))
	return res, err
}
