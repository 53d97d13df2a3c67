package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Prices of us-east-1 on arm64 in November 2026, in dollars, as docs/deploy.md has them.
const (
	perGatewayRequest = 3.50 / 1e6
	perLambdaRequest  = 0.20 / 1e6
	perGBSecond       = 0.0000133334
	perLoggedByte     = 0.50 / 1e9
	perWriteUnit      = 0.625 / 1e6

	// generate's memory by default, and the share of a processor that comes with it.
	lambdaGB    = 0.25
	lambdaShare = 256.0 / 1769
	// storeTime is what a round trip to DynamoDB takes from within its region; here it is
	// less.
	storeTime = 5 * time.Millisecond
	// otherLines is what API Gateway's access log and Lambda's own lines have of a request,
	// in bytes: about 450 and 550.
	otherLines = 1000
)

// refusal is a kind of request that is refused.
type refusal struct {
	name    string
	status  int
	uses    bool          // up a limit before
	pause   time.Duration // between two
	request func(ctx context.Context) *http.Request
	dollars float64 // the goal for a million
}

// refusals measures what it costs to refuse a million requests, by kind: a flood that gets
// nothing else has this price.
func refusals(ctx context.Context, l *lab) ([]table, error) {
	long := strings.Repeat("x", 16<<10)
	post := func(ctx context.Context, body string) *http.Request {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.RemoteAddr = "203.0.113.7:4711"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("User-Agent", "bench")
		return r
	}
	ask := func(ctx context.Context) *http.Request {
		return post(ctx, `{"model":"docqa","max_tokens":400,"messages":[{"role":"user","content":"[[long]] What does the contract say?"}]}`)
	}
	t := table{Title: "A million refusals", Columns: []column{{"log, bytes", 0}, {"metrics, bytes", 0}, {"write units", 1}, {"processor, ms", 2}, {"dollars", 2}}}
	for _, kind := range []refusal{
		{"404, an address of 16 KB", 404, false, 0, func(ctx context.Context) *http.Request {
			return httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/"+long, nil)
		}, 4.5},
		{"400, 16 KB that are no JSON", 400, false, 0, func(ctx context.Context) *http.Request { return post(ctx, long) }, 4.5},
		{"401, a token of 16 KB", 401, false, 0, func(ctx context.Context) *http.Request {
			r := ask(ctx)
			r.Header.Set("Authorization", "Bearer "+long)
			return r
		}, 4.5},
		{"413, more than 1 MB", 413, false, 0, func(ctx context.Context) *http.Request { return post(ctx, strings.Repeat(long, 65)) }, 4.6},
		{"429, once a second", 429, true, 1100 * time.Millisecond, ask, 5.5},
		{"429, remembered", 429, true, 10 * time.Millisecond, ask, 4.8},
	} {
		values, err := l.refuse(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		t.add(kind.name, values...)
		t.expect(atMost, kind.dollars, 4)
	}
	answered, err := l.refuse(ctx, refusal{"", 200, false, 3500 * time.Millisecond, func(ctx context.Context) *http.Request {
		return post(ctx, `{"model":"docqa","max_tokens":400,"messages":[{"role":"user","content":"What does the contract say?"}]}`)
	}, 0})
	if err != nil {
		return nil, err
	}
	lines := table{Title: "What an answered call writes", Columns: []column{{"log, bytes", 0}, {"metrics, bytes", 0}}}
	lines.add("anonymous, with its spend event", answered[:2]...)
	return []table{t, lines}, nil
}

// refuse measures one kind: bytes of log and of metrics, write units and processor time
// of one, and the price of a million.
func (l *lab) refuse(ctx context.Context, kind refusal) ([]float64, error) {
	_, client, name, err := l.table(ctx, 0)
	if err != nil {
		return nil, err
	}
	on, config, err := l.onStage(ctx)
	if err != nil {
		return nil, err
	}
	defer on.Close()
	// Denials in place of challenges.
	p, err := policy.Parse(challengeAt.ReplaceAll(config, nil))
	if err != nil {
		return nil, err
	}
	db, now := &metered{Client: client}, time.Now()
	clock := func() time.Time { return now }
	var log, metrics bytes.Buffer
	h, err := chatapi.Build(ctx, chatapi.Parts{
		Policy: p, DynamoDB: db, Bucket: bucket.Options{Table: name}, Now: clock,
		Log: environ.NewLog(&log), Metrics: emf.New(&metrics, "tokenfuse", clock),
		Secret: func(context.Context, policy.Secret) (string, error) { return "a-secret-of-this-bench-alone", nil },
	})
	if err != nil {
		return nil, err
	}
	one := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, kind.request(ctx))
		return w.Code
	}
	for range 1000 {
		if status := one(); status == kind.status {
			break
		} else if !kind.uses {
			return nil, fmt.Errorf("status %d", status)
		}
		now = now.Add(3500 * time.Millisecond) // so that tokens are what runs out
	}
	const requests = 10
	log.Reset()
	metrics.Reset()
	db.take()
	before := processorTime()
	for range requests {
		now = now.Add(kind.pause)
		if status := one(); status != kind.status {
			return nil, fmt.Errorf("status %d", status)
		}
	}
	processor := (processorTime() - before) / requests
	_, units := db.take()
	units /= requests
	logged, measured := float64(log.Len())/requests, float64(metrics.Len())/requests
	billed := (time.Duration(float64(processor)/lambdaShare) + time.Duration(units*float64(storeTime)) + time.Millisecond - 1).Truncate(time.Millisecond)
	dollars := perGatewayRequest + perLambdaRequest + billed.Seconds()*lambdaGB*perGBSecond +
		(logged+measured+otherLines)*perLoggedByte + units*perWriteUnit
	return []float64{logged, measured, units, milliseconds(processor), 1e6 * dollars}, nil
}

var challengeAt = regexp.MustCompile(`(?m)^ *challenge_at:.*$`)
