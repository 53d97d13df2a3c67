package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// What Lambda gives and takes (us-east-1, arm64, November 2026): a whole processor at
// 1,769 MB and less in proportion, but a whole one while a container starts.
const (
	fullProcessor = 1769.0          // MB
	gigabyteOf    = 0.0000133334    // dollars for a GB-second
	modelTime     = 4 * time.Second // what a call waits for its model, as in docs/deploy.md
	fresh         = 7               // containers of each size
	calls         = 15              // of each container after its first
)

// managed is what Lambda Managed Instances cost a month, whatever the memory of the function:
// three m7g.large and their management (docs/deploy.md). At steady calls a second it is
// shared by so many million calls.
const (
	managed       = 206.0 // dollars
	steady        = 10.0  // calls a second
	managedByCall = managed / (steady * 730 * 3600 / 1e6)
)

// memory measures generate's first call in a fresh container and later ones, as Lambda
// runs them at several sizes: with a whole processor until it asks for work, then with the
// share that comes with the memory. Store and model are behind TLS.
func memory(ctx context.Context, l *lab) ([]table, error) {
	dir, err := os.MkdirTemp("", "tokenfuse-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	g, err := l.newGround(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer g.stage.Close()
	if err := build(ctx, filepath.Join(dir, "generate"), "./functions/generate"); err != nil {
		return nil, err
	}
	closeTLS, err := g.secure()
	if err != nil {
		return nil, err
	}
	defer closeTLS()
	t := table{Title: "", Columns: []column{{"ms to ready", 1}, {"first call, ms", 1}, {"warm call, ms", 1}, {"first / warm", 2}, {"$ standard", 2}, {"$ managed", 2}}}
	for _, mb := range []int{128, 256, 512, 1024} {
		var ready, first, warm []time.Duration
		for n := range fresh {
			c, err := g.container(ctx, mb, n)
			if err != nil {
				return nil, fmt.Errorf("%d MB: %w", mb, err)
			}
			t.Title, ready, first, warm = c.how, append(ready, c.ready), append(first, c.first), append(warm, c.warm...)
		}
		f, w := percentile(first, 50), percentile(warm, 50)
		billed := 1e6*(modelTime+w).Seconds()*float64(mb)/1024*gigabyteOf + 0.20
		t.add(fmt.Sprintf("%d MB", mb), milliseconds(percentile(ready, 50)), milliseconds(f), milliseconds(w), float64(f)/float64(w), billed, managedByCall+0.20)
		if mb == 256 {
			t.expect(atMost, 2, 3)
		}
	}
	t.Title = fmt.Sprintf("Memory of generate: median of %d fresh containers, %d later calls each; dollars of a million calls that wait 4 s for a model, on Managed Instances at %g a second (%s)", fresh, calls, steady, t.Title)
	return []table{t}, nil
}

// secure puts TLS before the store and the model.
func (g *ground) secure() (func(), error) {
	var servers []*httptest.Server
	behind := func(address string) (string, error) {
		to, err := url.Parse(address)
		if err != nil {
			return "", err
		}
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.FlushInterval = -1
		proxy.ErrorLog = log.New(io.Discard, "", 0) // of functions that have ended
		s := httptest.NewTLSServer(proxy)
		servers = append(servers, s)
		return s.URL, nil
	}
	all := func() {
		for _, s := range servers {
			s.Close()
		}
	}
	store, err1 := behind(g.stage.Store)
	model, err2 := behind(g.stage.URL)
	if err := errors.Join(err1, err2); err != nil {
		return all, err
	}
	roots := filepath.Join(g.dir, "roots.pem")
	config := filepath.Join(g.dir, "tokenfuse.yaml")
	yaml, err := os.ReadFile(config)
	if err != nil {
		return all, err
	}
	g.env = append(g.env, "SSL_CERT_FILE="+roots, "AWS_ENDPOINT_URL_DYNAMODB="+store)
	return all, errors.Join(
		os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: servers[0].Certificate().Raw}), 0o600),
		os.WriteFile(config, []byte(strings.ReplaceAll(string(yaml), g.stage.URL, model)), 0o600))
}

// lived is what a container took.
type lived struct {
	ready, first time.Duration
	warm         []time.Duration
	how          string // its processor was shared out
}

// container starts generate on empty tables, with a processor as of so many megabytes.
func (g *ground) container(ctx context.Context, mb, n int) (c lived, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	limits, spend := fmt.Sprintf("memory-%d-%d", mb, n), fmt.Sprintf("memory-spend-%d-%d", mb, n)
	db := g.stage.DynamoDB()
	if err := errors.Join(engine.CreateLimitsTable(ctx, db, limits), engine.CreateSpendTable(ctx, db, spend)); err != nil {
		return c, err
	}
	f, err := runtimeapi.Start(ctx, filepath.Join(g.dir, "generate"), g.dir, append(g.env, "LIMITS_TABLE="+limits, "SPEND_TABLE="+spend, fmt.Sprintf("AWS_LAMBDA_FUNCTION_MEMORY_SIZE=%d", mb))...)
	if err != nil {
		return c, err
	}
	defer f.Close()
	select {
	case <-f.Ready():
		c.ready = time.Since(f.Started)
	case <-f.Exited():
		return c, errors.New(f.Log())
	case <-ctx.Done():
		return c, ctx.Err()
	}
	release, how, err := shareProcessor(f.PID(), float64(mb)/fullProcessor)
	if err != nil {
		return c, err
	}
	defer release()
	c.how = how
	for i := range 1 + calls { // each of another network, so that nobody is challenged
		begun := time.Now()
		a, err := f.Invoke(bytes.Replace(firstEvent("generate"), []byte("203.0.113.7"), fmt.Appendf(nil, "203.0.%d.7", i), 1), time.Minute).Answer(ctx)
		if err != nil {
			return c, err
		}
		body, err := io.ReadAll(a.Body)
		took := time.Since(begun)
		if err == nil && a.Error != nil {
			err = a.Error
		}
		if err != nil {
			return c, err
		}
		if !strings.Contains(string(body), `"statusCode":200`) {
			return c, fmt.Errorf("the answer is %s", body)
		}
		if i == 0 {
			c.first = took
		} else {
			c.warm = append(c.warm, took)
		}
	}
	return c, nil
}
