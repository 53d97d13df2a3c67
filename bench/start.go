package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// deployed are the functions, hello first: goals are for the start as a multiple of
// hello's, and for the megabytes of the package.
var deployed = []struct {
	name, source string
	start, size  float64
}{
	{"hello", "./bench/hello", 0, 0},
	{"generate", "./functions/generate", 2.5, 8},
	{"clearlimit", "./functions/clearlimit", 2, 5},
	{"spendalarm", "./functions/spendalarm", 2, 5},
}

// starts is how often each function is started, and warmUps how often before that,
// so that files are in memory.
const (
	starts  = 31
	warmUps = 2
)

// coldStart measures what a new process of each function takes to be ready for its
// first event, without and with what it waits for the network, and to answer it; and the
// size of what is deployed.
func coldStart(ctx context.Context, l *lab) ([]table, error) {
	dir, err := os.MkdirTemp("", "tokenfuse-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	here := table{
		Title:   fmt.Sprintf("Cold start as built for deployment, median of %d in turn (generate answers a chat completion)", starts),
		Columns: []column{{"ms to ready", 1}, {"x hello", 2}, {"+ network", 1}, {"ms to answer", 1}, {"x hello", 2}},
	}
	g, err := l.newGround(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer g.stage.Close()
	for _, f := range deployed {
		if err := build(ctx, filepath.Join(dir, f.name), f.source); err != nil {
			return nil, err
		}
	}
	ready, waited, answer := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	for n := range warmUps + starts {
		for _, f := range deployed {
			s, err := g.start(ctx, f.name, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			if n >= warmUps {
				ready[f.name], waited[f.name], answer[f.name] = append(ready[f.name], s.ready-s.waited), append(waited[f.name], s.waited), append(answer[f.name], s.answer)
			}
		}
	}
	hello := []time.Duration{percentile(ready["hello"], 50), percentile(answer["hello"], 50)}
	for _, f := range deployed {
		r, a := percentile(ready[f.name], 50), percentile(answer[f.name], 50)
		here.add(f.name, milliseconds(r), float64(r)/float64(hello[0]), milliseconds(percentile(waited[f.name], 50)), milliseconds(a), float64(a)/float64(hello[1]))
		if f.start > 0 {
			here.expect(atMost, f.start, 1)
		}
	}
	lies, err := g.causes(ctx)
	if err != nil {
		return nil, err
	}
	size, err := l.packages(ctx, dir)
	return []table{here, lies, size}, err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// build builds a function as for deployment.
func build(ctx context.Context, to, source string, env ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-tags", "lambda.norpc", "-o", to, source)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", source, err, out)
	}
	return nil
}

// packages measures the zip files that are deployed, and fails if building anew gives
// another one.
func (l *lab) packages(ctx context.Context, dir string) (table, error) {
	config, err := os.ReadFile(l.config)
	if err != nil {
		return table{}, err
	}
	tree, err := policy.Tree(config)
	if err != nil {
		return table{}, err
	}
	t := table{Title: "Package for linux/arm64, with tokenfuse.yaml", Columns: []column{{"program, MB", 2}, {"zipped, MB", 2}}}
	for _, f := range deployed {
		var zips [2][]byte
		var program int64
		for n := range zips {
			to := filepath.Join(dir, fmt.Sprintf("%s-arm64-%d", f.name, n))
			if err := build(ctx, to, f.source, "GOOS=linux", "GOARCH=arm64"); err != nil {
				return t, err
			}
			info, err := os.Stat(to)
			if err != nil {
				return t, err
			}
			program = info.Size()
			if zips[n], err = pack(to, config, tree); err != nil {
				return t, err
			}
		}
		if !bytes.Equal(zips[0], zips[1]) {
			return t, fmt.Errorf("two builds of %s differ", f.name)
		}
		t.add(f.name, float64(program)/1e6, float64(len(zips[0]))/1e6)
		if f.size > 0 {
			t.expect(atMost, f.size)
		}
	}
	return t, nil
}

// pack makes the zip file of a function: no times, so that equal files make equal ones.
func pack(program string, config, tree []byte) ([]byte, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range []struct {
		name string
		data []byte
		mode os.FileMode
	}{{"bootstrap", binary, 0o755}, {"tokenfuse.yaml", config, 0o644}, {"tokenfuse.yaml" + policy.TreeSuffix, tree, 0o644}} {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err = z.Close()
	return b.Bytes(), err
}

// ground is what the functions find when they start: their code's folder, and AWS and
// the model on this machine.
type ground struct {
	stage *stage.Stage
	dir   string
	env   []string
}

func (l *lab) newGround(ctx context.Context, dir string) (*ground, error) {
	on, config, err := l.onStage(ctx)
	if err != nil {
		return nil, err
	}
	g := &ground{stage: on, dir: dir, env: on.Environ()}
	for _, s := range l.policy.Secrets() {
		if s.Env == "" {
			on.Close()
			return nil, errors.New("the configuration keeps a secret elsewhere than in the environment")
		}
		g.env = append(g.env, s.Env+"=a-secret-of-this-bench-alone")
	}
	tree, err := policy.Tree(config)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "tokenfuse.yaml")
	return g, errors.Join(os.WriteFile(file, config, 0o600), os.WriteFile(file+policy.TreeSuffix, tree, 0o600),
		os.WriteFile(filepath.Join(dir, plainConfig), config, 0o600))
}

// plainConfig is the configuration without its tree.
const plainConfig = "plain.yaml"

// started is how a start went.
type started struct {
	ready, waited, answer time.Duration
	log                   string
}

// start starts a function on empty tables, lets it answer one event and ends it.
func (g *ground) start(ctx context.Context, name string, n int, env ...string) (s started, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	limits, spend := fmt.Sprintf("start-%s-%d", name, n), fmt.Sprintf("start-spend-%s-%d", name, n)
	db := g.stage.DynamoDB()
	if err := errors.Join(engine.CreateLimitsTable(ctx, db, limits), engine.CreateSpendTable(ctx, db, spend)); err != nil {
		return s, err
	}
	f, err := runtimeapi.Start(ctx, filepath.Join(g.dir, name), g.dir, slices.Concat(g.env, env, []string{"LIMITS_TABLE=" + limits, "SPEND_TABLE=" + spend})...)
	if err != nil {
		return s, err
	}
	defer f.Close()
	select {
	case <-f.Ready():
		s.ready = time.Since(f.Started)
	case <-f.Exited():
		return s, errors.New(f.Log())
	case <-ctx.Done():
		return s, ctx.Err()
	}
	a, err := f.Invoke(firstEvent(name), time.Minute).Answer(ctx)
	if err != nil {
		return s, err
	}
	body, err := io.ReadAll(a.Body)
	s.answer, s.log = time.Since(f.Started), f.Log()
	switch {
	case err != nil:
	case a.Error != nil:
		err = a.Error
	case name != "spendalarm" && !bytes.Contains(body, []byte(`"statusCode":200`)):
		err = fmt.Errorf("the answer is %s", body)
	}
	// The network is this machine's, and no part of what the goal is about.
	_, waited := ownWork(s.log)
	s.waited = time.Duration(waited * float64(time.Millisecond))
	return s, err
}

// ownWork is what a function says of its start: how long that took, since its packages
// were initialised, and how much of it was for the network; milliseconds.
func ownWork(log string) (ms, waited float64) {
	for line := range strings.Lines(log) {
		var start struct {
			MS     float64 `json:"ms"`
			Waited float64 `json:"waited_ms"`
			Msg    string
		}
		if json.Unmarshal([]byte(line), &start) == nil && start.Msg == "the function starts" {
			return start.MS, start.Waited
		}
	}
	return 0, 0
}

// traced is how often a start is looked into.
const traced = 15

// initialised is a line of GODEBUG=inittrace=1.
var initialised = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock`)

// causes measures where the starts lie: in packages that are initialised before main, as
// the runtime says, and in main. To look takes time, too.
func (g *ground) causes(ctx context.Context) (table, error) {
	parts := []struct{ shown, is string }{
		{"SDK schemas", `^github\.com/aws/.*/schemas$`}, {"SDK endpoints", `^github\.com/aws/.*/internal/endpoints$`}, {"other SDK", `^github\.com/aws/`},
		{"YAML", `^go\.yaml\.in/`}, {"own packages", `^github\.com/tokenfuse/`}, {"all others", ``},
	}
	t := table{Title: fmt.Sprintf("Where it lies, ms, median of %d: packages that are initialised, then main, and what it would take with YAML in place of the tree", traced)}
	for _, p := range parts {
		t.Columns = append(t.Columns, column{p.shown, 2})
	}
	t.Columns = append(t.Columns, column{"main", 2}, column{"with YAML", 2})
	for _, f := range deployed {
		took := make([][]time.Duration, len(parts)+2)
		for n := range traced {
			for i, env := range [][]string{{"GODEBUG=inittrace=1"}, {"TOKENFUSE_CONFIG=" + plainConfig}} {
				s, err := g.start(ctx, f.name, warmUps+starts+2*n+i, env...)
				if err != nil {
					return t, fmt.Errorf("%s: %w", f.name, err)
				}
				ms, waited := ownWork(s.log)
				took[len(parts)+i] = append(took[len(parts)+i], time.Duration((ms-waited)*float64(time.Millisecond)))
				if i > 0 {
					continue
				}
				sums := make([]float64, len(parts))
				for _, line := range initialised.FindAllStringSubmatch(s.log, -1) {
					clock, err := strconv.ParseFloat(line[2], 64)
					if err != nil {
						return t, err
					}
					for p := range parts {
						if regexp.MustCompile(parts[p].is).MatchString(line[1]) {
							sums[p] += clock
							break
						}
					}
				}
				for p, sum := range sums {
					took[p] = append(took[p], time.Duration(sum*float64(time.Millisecond)))
				}
			}
		}
		values := make([]float64, len(took))
		for i, all := range took {
			values[i] = milliseconds(percentile(all, 50))
		}
		t.add(f.name, values...)
	}
	return t, nil
}

// firstEvent is the event that a function is there for.
func firstEvent(name string) []byte {
	header := map[string][]string{"Content-Type": {"application/json"}, "User-Agent": {"bench"}}
	e := events.APIGatewayProxyRequest{HTTPMethod: "POST", Path: "/v1/chat/completions", MultiValueHeaders: header,
		Body: `{"model":"docqa","stream":true,"messages":[{"role":"user","content":"What does the contract say about the notice period?"}]}`}
	e.RequestContext.Identity.SourceIP = "203.0.113.7"
	switch name {
	case "clearlimit":
		e.HTTPMethod, e.Path, e.Body = "GET", "/admin/fuse", ""
		e.RequestContext.Identity.UserArn = "arn:aws:iam::123456789012:user/support"
	case "spendalarm":
		return []byte(`{"source":"aws.scheduler","detail-type":"Scheduled Event"}`)
	}
	event, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return event
}
