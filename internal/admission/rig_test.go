package admission

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// testYAML has small figures, so that tests reach them.
const testYAML = `
providers:
  main: {kind: openai, base_url: "https://api.openai.com/v1", api_key: {env: TEST_SECRET}}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, context: 1000000, image_tokens: {low: 85, high: 1000}, price_per_mtok: {input: "0.40", cached_input: "0.10", output: "1.60"}}
  big:   {provider: main, id: big-model, tokenizer: upper_bound, context: 1000000, image_tokens: {low: 100, high: 900}, price_per_mtok: {input: "1.60", output: "6.40"}}
  exact: {kind: embedding, provider: main, id: text-embedding-3-small, tokenizer: cl100k_base, context: 100, price_per_mtok: {input: "0.02"}}
  rough: {kind: embedding, provider: main, id: e5, context: 100, price_per_mtok: {input: "0.02"}}
features:
  vectors: {model: exact, max_inputs: 3}
  e5:    {model: rough}
  docqa: {model: small, fallback: big, system: "You answer questions.", max_output_tokens: 800}
  open:  {model: small, max_output_tokens: 800, allow: [system, response_format]}
  cv:    {model: small, system: "You write CVs.", max_output_tokens: 2000, tiers: [user], quota: {capacity: 1, per: 24h}}
  long:  {model: small, max_output_tokens: 2000, tiers: [user]}
  tools: {model: small, fallback: big, max_output_tokens: 800, allow: [tools]}
  desk:  {model: small, fallback: big, max_output_tokens: 800, reasoning_effort: [low, medium], tools: [TOOL(look_up), TOOL(book)]}
  eyes:  {model: small, fallback: big, max_output_tokens: 800, allow: [images], max_images: 2}
  links: {model: small, fallback: big, max_output_tokens: 800, allow: [image_urls], max_images: 2}
tiers:
  anonymous: {max_input_chars: 2000, max_input_tokens: 2000, max_messages: 16, max_output_tokens: 400, max_in_flight: 4,
              limits: {tokens: {capacity: 5000, per: 1h}, requests: {capacity: 20, per: 1m}}, challenge_at: 0.8, pool: anonymous,
              network: {tokens: {capacity: 20000, per: 1h}, requests: {capacity: 100, per: 1m}, max_in_flight: 32},
              passes: {capacity: 30, per: 1h, ttl: 30m, calls: 2}}
  user:      {max_input_tokens: 6000, max_input_chars: 9000, max_messages: 4, max_output_tokens: 4000, max_in_flight: 1, max_tools: 2,
              limits: {tokens: {capacity: 50000, per: 1h}, requests: {capacity: 2, per: 1m}, spend: {usd: "0.05", per: 24h}}}
pools: {anonymous: {usd: "0.20", per: 1h}, all: {usd: "1.00", per: 1h}}
auth: {issuer: "http://127.0.0.1:1", audience: "test", jwks_url: "http://127.0.0.1:1/keys"}
challenge: {kind: altcha, secret: {env: TEST_SECRET}}
fingerprint: {secret: {env: TEST_SECRET}}
`

var toolYAML = regexp.MustCompile(`TOOL\((\w+)\)`)

func testPolicy(t testing.TB, edit ...string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(strings.NewReplacer(edit...).Replace(toolYAML.ReplaceAllString(testYAML, `{name: $1, description: "Does $1.", parameters: {type: object, properties: {what: {type: string}}}}`))))
	check.OK(t, err)
	return p
}

func tool(name string) openai.Tool {
	return openai.Tool{Name: name, Description: "Does " + name + ".", Parameters: json.RawMessage(`{"type":"object","properties":{"what":{"type":"string"}}}`)}
}

// offerOf is a feature as it is open to a kind of callers.
func offerOf(t testing.TB, p *policy.Policy, feature, tier string, k limits.Kind) *Offer {
	t.Helper()
	o, err := newOffer(p.Features[feature], p.Tiers[tier], k)
	check.OK(t, err)
	return o
}

// rig is a controller on a real store, with a clock that stands still.
type rig struct {
	*Controller
	t     *testing.T
	at    atomic.Int64 // what the clock says, in µs
	down  atomic.Bool  // the limits' writes fail
	sends atomic.Int64 // writes of the limits and pools
	db    *dynamodb.Client
	table string
}

func newRig(t *testing.T, edit ...string) *rig {
	t.Helper()
	g := &rig{t: t}
	g.at.Store(time.Now().Truncate(time.Second).UnixMicro())
	p := testPolicy(t, edit...)
	db, table := enginetest.Table(t)
	g.db, g.table = db, table
	buckets, err := bucket.New(flaky{db, g}, bucket.Options{Table: table, LongestPeriod: p.LongestPeriod() + time.Minute, Now: g.now,
		AttemptTimeout: 20 * time.Second, ReserveTimeout: time.Minute, SettleTimeout: time.Minute})
	check.OK(t, err)
	pools := map[string]*bucket.Pool{}
	for name, pool := range p.Pools {
		if pools[name], err = buckets.NewPool("pool#"+name, int64(pool.Ceiling), pool.Period, bucket.PoolOptions{Margin: time.Microsecond}); err != nil {
			t.Fatal(err)
		}
	}
	spendDB, spend := enginetest.SpendTable(t)
	events, err := ledger.New(spendDB, ledger.Options{Table: spend, Now: g.now, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	g.Controller, err = New(Config{
		Policy: p, Buckets: buckets, Pools: pools, Fuse: fuse.NewReader(db, table, g.now), Ledger: events, Challenges: true,
		AskTime: time.Minute, TakeBackTime: time.Minute, Now: g.now,
		Log: func(context.Context) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) },
	})
	check.OK(t, err)
	return g
}

func (g *rig) now() time.Time { return time.UnixMicro(g.at.Load()) }

func (g *rig) advance(d time.Duration) { g.at.Add(d.Microseconds()) }

// flaky is a store whose writes fail on demand.
type flaky struct {
	*dynamodb.Client
	g *rig
}

func (f flaky) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	f.g.sends.Add(1)
	if f.g.down.Load() {
		return nil, &smithy.GenericAPIError{Code: "AccessDeniedException"}
	}
	return f.Client.UpdateItem(ctx, in, opts...)
}

func (g *rig) user(id string) Caller {
	return Caller{Kind: limits.User, ID: id, Tier: g.Policy.Tiers[policy.User]}
}

func (g *rig) visitor(network, client string) Caller {
	return Caller{Kind: limits.Network, ID: network, Client: client, Jitter: 1, Tier: g.Policy.Tiers[policy.Anonymous]}
}

// call is a call of a feature with a short prompt; maxOutput 0: as much as it may have.
func (g *rig) call(caller Caller, feature string, maxOutput int64) *Call {
	g.t.Helper()
	o, refusal := g.Offer(caller, feature)
	if refusal != nil {
		g.t.Fatal(refusal.Kind)
	}
	c, refusal := o.Cap(Prompt{Messages: []openai.Message{{Role: "user", Content: "What is a token bucket?"}}, MaxOutput: maxOutput})
	if refusal != nil {
		g.t.Fatal(refusal.Kind)
	}
	c.End = time.Now().Add(time.Minute)
	return c
}

func (g *rig) admit(caller Caller, feature string, maxOutput int64) (*Admission, *Refusal) {
	g.t.Helper()
	return g.Admit(g.t.Context(), caller, g.call(caller, feature, maxOutput))
}

// mustAdmit is admit for what must be admitted.
func (g *rig) mustAdmit(caller Caller, feature string, maxOutput int64) *Admission {
	g.t.Helper()
	a, refusal := g.admit(caller, feature, maxOutput)
	if refusal != nil {
		g.t.Fatalf("refused: %s %+v", refusal.Kind, refusal)
	}
	return a
}

// answered is the tally of a whole answer with a report.
func answered(a *Admission, output int64) Tally {
	return Tally{Model: a.Call.Offer.Candidates[0].Model, Ending: Completed, Finished: true, Text: true, Input: a.Call.Input, Output: output, Made: output,
		Usage: &price.Usage{Input: a.Call.Input, Output: output}}
}

// use settles a call that was answered by tokens of a cached input, the cheapest.
func (g *rig) use(a *Admission, tokens int64) Bill {
	g.t.Helper()
	tally := answered(a, 0)
	tally.Usage.Input, tally.Usage.CachedInput = tokens, tokens
	return a.Settle(g.t.Context(), tally)
}

// standing is what is left of a caller's limits, and how many calls are open.
func (g *rig) standing(caller Caller) (left map[string]int64, open int) {
	g.t.Helper()
	s, refusal := g.Standing(g.t.Context(), caller)
	if refusal != nil {
		g.t.Fatal(refusal.Kind)
	}
	left = map[string]int64{}
	for _, l := range s.Limits {
		left[l.Name] = l.Remaining
	}
	state, err := g.Buckets.Peek(g.t.Context(), caller.Key())
	check.OK(g.t, err)
	return left, state.InFlight
}

// committed is what a pool has out, by the store.
func (g *rig) committed(pool string) float64 {
	g.t.Helper()
	share, err := g.Pools[pool].Refresh(g.t.Context())
	check.OK(g.t, err)
	return share
}

// drain takes all that a pool has, for as long as the test runs.
func (g *rig) drain(pool string) {
	g.t.Helper()
	for amount := g.Pools[pool].Burst(); amount > 0; amount /= 2 {
		if _, _, err := g.Pools[pool].Reserve(g.t.Context(), amount); err != nil {
			g.t.Fatal(err)
		}
	}
}

// blockEnd is when what block blocks is free again.
func (g *rig) blockEnd() time.Time { return g.now().Truncate(time.Hour).Add(3 * time.Hour) }

func (g *rig) block(key string) {
	g.t.Helper()
	check.OK(g.t, fuse.NewWriter(g.db, g.table, g.now).Block(g.t.Context(), key, fuse.Block{Until: g.blockEnd(), SetBy: "test"}))
}

func (g *rig) setFuse(s fuse.State, until time.Time) {
	g.t.Helper()
	check.OK(g.t, fuse.NewWriter(g.db, g.table, g.now).Set(g.t.Context(), fuse.Setting{State: s, Until: until, SetBy: "test"}))
}
