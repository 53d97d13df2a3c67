package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// requestCost is what a request costs outside the store and the provider, both
// of which answer at once here: telling who calls, reading, counting, drawing on
// the pools, building the writes, answering in 20 parts, logging. To the handler
// it looks like ten requests a second, so that it reads the fuse and keeps leases
// as often as a busy instance would.
func requestCost(ctx context.Context, l *lab) ([]table, error) {
	users, err := newSigner()
	if err != nil {
		return nil, err
	}
	clock := &ticker{start: time.Now()}
	h, err := l.handler(ctx, users, clock)
	if err != nil {
		return nil, err
	}
	ed, err := users.token(jwt.SigningMethodEdDSA, users.ed)
	if err != nil {
		return nil, err
	}
	rs, err := users.token(jwt.SigningMethodRS256, users.rsa)
	if err != nil {
		return nil, err
	}
	t := table{
		Title:   "One request with a prompt of 1 KB, without store and provider",
		Columns: []column{{"time, µs", 0}, {"processor, µs", 0}, {"KB allocated", 1}, {"allocations", 0}},
	}
	for _, caller := range []struct{ name, token string }{{"anonymous", ""}, {"user, EdDSA token", ed}, {"user, RS256 token", rs}} {
		for _, stream := range []bool{false, true} {
			name := caller.name + ", buffered"
			if stream {
				name = caller.name + ", streamed"
			}
			values, err := requests(ctx, h, clock, caller.token, stream)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			t.add(name, values...)
		}
	}
	return []table{t}, nil
}

// handler is the generate function with the configuration's policy, but tokens of the
// bench's own issuer.
func (l *lab) handler(ctx context.Context, users *signer, clock *ticker) (http.Handler, error) {
	p := *l.policy
	p.Auth = &policy.Auth{Issuer: benchIssuer, Audience: benchAudience, JWKSURL: benchIssuer + "keys"}
	providers := map[string]provider.Provider{}
	for name := range p.Providers {
		providers[name] = instantProvider{}
	}
	return chatapi.Build(ctx, chatapi.Parts{
		Policy: &p, DynamoDB: instantStore(p.LongestPeriod()), Bucket: bucket.Options{Table: "limits"}, Pool: bucket.PoolOptions{Monotonic: clock.elapsed},
		Secret:    func(context.Context, policy.Secret) (string, error) { return "a secret of this bench alone", nil },
		Providers: providers, Keys: &http.Client{Transport: users}, Log: environ.NewLog(io.Discard), Now: clock.now,
	})
}

// requests makes one request again and again.
func requests(ctx context.Context, h http.Handler, clock *ticker, token string, stream bool) ([]float64, error) {
	prompt := strings.Repeat("What does the contract say about the notice period? ", 20)[:1000]
	body := fmt.Sprintf(`{"model":"docqa","stream":%t,"max_tokens":300,"temperature":0.2,"messages":[{"role":"user","content":%q}]}`, stream, prompt)
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"bench"}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	template, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", nil)
	if err != nil {
		return nil, err
	}
	template.Header, template.RemoteAddr = header, "203.0.113.7:4711"
	one := func() *discard {
		clock.ticks.Add(1)
		r := *template
		r.Body = io.NopCloser(strings.NewReader(body))
		w := &discard{header: http.Header{}}
		h.ServeHTTP(w, &r)
		return w
	}
	if w := one(); w.status != 0 && w.status != http.StatusOK || !bytes.Contains(w.first, []byte("assistant")) {
		return nil, fmt.Errorf("answered with status %d: %s", w.status, w.first)
	}
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		before := processorTime()
		for b.Loop() {
			one()
		}
		b.ReportMetric(float64(processorTime()-before)/float64(b.N), "processor-ns/op")
	})
	return []float64{
		float64(result.NsPerOp()) / 1e3, result.Extra["processor-ns/op"] / 1e3,
		float64(result.AllocedBytesPerOp()) / 1e3, float64(result.AllocsPerOp()),
	}, nil
}

// ticker is a clock that moves on by a tenth of a second with each tick.
type ticker struct {
	start time.Time
	ticks atomic.Int64
}

func (t *ticker) elapsed() time.Duration {
	return time.Duration(t.ticks.Load()) * 100 * time.Millisecond
}
func (t *ticker) now() time.Time { return t.start.Add(t.elapsed()) }

// discard is a ResponseWriter that keeps the first write.
type discard struct {
	header http.Header
	status int
	first  []byte
}

func (d *discard) Header() http.Header    { return d.header }
func (d *discard) WriteHeader(status int) { d.status = status }
func (d *discard) Flush()                 {}
func (d *discard) Write(p []byte) (int, error) {
	if d.first == nil {
		d.first = p
	}
	return len(p), nil
}

// answering is a store that answers every write at once with the same item, that
// of a user in the midst of a session, and in which nobody has set the fuse.
type answering struct{ out dynamodb.UpdateItemOutput }

func instantStore(longest time.Duration) *answering {
	now := time.Now()
	n := dynamo.Number
	return &answering{dynamodb.UpdateItemOutput{Attributes: dynamo.Item{
		"pk":            dynamo.Text("user#123"),
		"t_requests_60": n(now.UnixMicro()),
		"t_tokens_3600": n(now.Add(5 * time.Minute).UnixMicro()),
		"t_spend_86400": n(now.Add(10 * time.Minute).UnixMicro()),
		"g_tokens_3600": n(80_000_000),
		"g_spend_86400": n(70_000_000),
		"o":             n(0),
		"expires":       n(now.Add(longest).Unix()),
	}}}
}

func (a *answering) UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return &a.out, nil
}

func (a *answering) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return &dynamodb.GetItemOutput{}, nil
}

func (a *answering) PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return &dynamodb.PutItemOutput{}, nil
}

// instantProvider answers every call at once, in parts as a model would.
type instantProvider struct{}

func (instantProvider) Call(context.Context, provider.Request) (provider.Answer, error) {
	return &instantAnswer{}, nil
}

const answerParts = 20

type instantAnswer struct{ given int }

func (a *instantAnswer) Next() (provider.Part, error) {
	a.given++
	switch {
	case a.given <= answerParts:
		return provider.Part{Content: " some words of an answer"}, nil
	case a.given == answerParts+1:
		return provider.Part{FinishReason: "stop", Usage: &price.Usage{Input: 260, Output: 100}}, nil
	}
	return provider.Part{}, io.EOF
}

func (a *instantAnswer) Close() error { return nil }
