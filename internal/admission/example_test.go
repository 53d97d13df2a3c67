package admission_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

const batchPolicy = `
providers: {main: {kind: openai, base_url: "https://api.openai.com/v1", api_key: {env: OPENAI_API_KEY}}}
models: {small: {provider: main, id: gpt-4.1-mini, tokenizer: o200k_base, context: 1000000, price_per_mtok: {input: "0.40", output: "1.60"}}}
features: {summary: {model: small, system: "Summarize.", max_output_tokens: 300}}
tiers: {user: {max_input_tokens: 500, max_messages: 1, max_output_tokens: 300, max_in_flight: 1,
  limits: {tokens: {capacity: 1000, per: 1h}}}}
pools: {all: {usd: "1.00", per: 1h}}
auth: {issuer: "https://example.com", audience: "batch", jwks_url: "https://example.com/keys"}
`

// A program that summarizes a queue of documents, for one customer after the other. What
// each of them, and all together, may spend is decided as for callers of an API.
func Example() {
	ctx := context.Background()
	now := time.Now()
	clock := func() time.Time { return now } // stands still, so that nothing is refilled
	p, err := policy.Parse([]byte(batchPolicy))
	if err != nil {
		log.Fatal(err)
	}
	db, table, err := enginetest.NewTable() // in production: dynamodb.NewFromConfig(cfg)
	if err != nil {
		log.Fatal(err)
	}
	buckets, err := bucket.New(db, bucket.Options{Table: table, LongestPeriod: p.LongestPeriod() + time.Minute, Now: clock})
	if err != nil {
		log.Fatal(err)
	}
	all, err := buckets.NewPool("pool#all", int64(p.Pools["all"].Ceiling), p.Pools["all"].Period, bucket.PoolOptions{})
	if err != nil {
		log.Fatal(err)
	}
	c, err := admission.New(admission.Config{Policy: p, Buckets: buckets, Pools: map[string]*bucket.Pool{"all": all}, Fuse: fuse.NewReader(db, table, clock),
		Log: func(context.Context) *slog.Logger { return slog.New(slog.DiscardHandler) }, Now: clock})
	if err != nil {
		log.Fatal(err)
	}

	customer := admission.Caller{Kind: limits.User, ID: "acme", Tier: p.Tiers[policy.User]}
	summarize := func(document string, maxOutput int64) {
		offer, refusal := c.Offer(customer, "summary")
		if refusal != nil {
			log.Fatal(refusal.Kind)
		}
		call, refusal := offer.Cap(admission.Prompt{Messages: []openai.Message{{Role: "user", Content: document}}, MaxOutput: maxOutput})
		if refusal != nil {
			fmt.Printf("%s: %d of at most %d\n", refusal.Kind, refusal.Requested, refusal.Most)
			return
		}
		call.End = time.Now().Add(time.Minute)
		a, refusal := c.Admit(ctx, customer, call)
		if refusal != nil {
			fmt.Printf("%s: %s, %d of %d are left; %d tokens of output would fit now\n",
				refusal.Kind, refusal.Limit.Name, refusal.Remaining, refusal.Limit.Capacity, refusal.Affordable)
			return
		}
		meter := a.Meter(ctx, call.Candidates[0])
		defer func() { a.Settle(context.WithoutCancel(ctx), meter.Tally) }() // on every way out, a panic too

		// ... the call, and each part of its answer: ...
		meter.Take(&provider.Part{Content: "A summary.", FinishReason: "stop", Usage: &price.Usage{Input: call.Input, Output: 290}})
		meter.Ending = admission.Completed
		fmt.Println("summarized")
	}
	summarize("A contract about a house.", 0)
	summarize("A contract about a garden.", 0)
	summarize("A contract about a tree.", 0)
	summarize("A contract about a stone.", 0)
	summarize("A contract about "+fmt.Sprint(make([]int, 600))+".", 0)
	// Output:
	// summarized
	// summarized
	// summarized
	// over limit: tokens, 67 of 1000 are left; 46 tokens of output would fit now
	// too many tokens: 1219 of at most 500
}
