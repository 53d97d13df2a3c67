package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const sample = "../../tokenfuse.yaml"

func parse(t testing.TB, file string) *Policy {
	t.Helper()
	p, err := Parse([]byte(file))
	check.OK(t, err)
	return p
}

// said is the good file, in which nothing is left out of which a note would tell.
var said = strings.Replace(good, "    api_key:", "    bills_errors: false\n    api_key:", 1)

// Of several plans the tier that stands last in the file counts, whatever the order of the
// plans and of the names.
func TestTierOf(t *testing.T) {
	t.Parallel()
	tier := "  NAME:\n    max_input_tokens: 10000\n    max_output_tokens: 2000\n    limits:\n      tokens: {capacity: 50000, per: 1h}\n"
	p := parse(t, strings.Replace(good, "pools:\n", strings.ReplaceAll(tier, "NAME", "zeta")+strings.ReplaceAll(tier, "NAME", "alpha")+"pools:\n", 1))
	p.Auth.Plans = map[string]string{"Pro": "alpha", "8F3C": "zeta"}
	for plans, want := range map[string]string{
		"Pro": "alpha", "8F3C Pro": "alpha", "pro": "user", "8F3C": "zeta", "8F3C alpha": "alpha",
		"": "user", "user": "user", "zeta": "zeta", "alpha": "alpha", "zeta alpha": "alpha", "alpha zeta": "alpha", "user zeta": "zeta",
		"x alpha y zeta": "alpha", "Alpha": "user", "anonymous": "user", "anonymous zeta": "zeta", "x y": "user",
	} {
		list := strings.Fields(plans)
		if got, named := p.TierOf(list); got.Name != want || named != (want != "user" || plans == "user") {
			t.Errorf("%q: %s %v, want %s", plans, got.Name, named, want)
		}
	}
}

// TestValues reads every key of the schema once.
func TestValues(t *testing.T) {
	t.Parallel()
	p := parse(t, edit(good, "plan_claim: plan\n", "plan_claim: plan\n  plans: {user: [Pro, Pro Plan]}\n  email_verified: assume\n",
		toFeatures, embedding(`price_per_mtok: {input: "0.02"}`, `, max_inputs: 9`), toPrices, "    image_tokens: {low: 85, high: 145}\n"+toPrices,
		toAsk, toAsk+`    allow: [image_urls, tools]
    max_images: 1
    reasoning_effort: [high, none, low]
    tools:
      - name: weather
        description: Of a place.
        strict: false
        parameters:
          type: object
          required: [place, at]
          properties: {place: {type: string}, at: {enum: [now, null, 1.50, -2, true], description: <&>}}
          additionalProperties: false
      - {name: now}
`, "    max_input_tokens: 2000\n", "    max_input_tokens: 2000\n    max_images: 2\n    max_tools: 3\n"))
	main := &Provider{
		Name: "main", Kind: "openai", BaseURL: "https://api.openai.com/v1",
		APIKey: &Secret{Env: "API_KEY"}, Timeout: 30 * time.Second, Stream: true,
	}
	small := &Model{
		Name: "small", Provider: main, ID: "small-1", Tokenizer: "o200k_base", Context: 20000, MaxTokensField: "max_tokens", Stream: true, Images: &count.Images{Low: 85, High: 145},
		Prices: price.Table{Rates: price.Rates{Input: 400_000, CachedInput: 400_000, CacheWrite: 400_000, Output: 1_600_000}},
	}
	large := &Model{
		Name: "large", Provider: main, ID: "large-1", Tokenizer: "upper_bound", Context: 20000, MaxTokensField: "max_completion_tokens", Stream: true,
		Prices: price.Table{
			Rates:     price.Rates{Input: 4_000_000, CachedInput: 1_000_000, CacheWrite: 5_000_000, Output: 16_000_000},
			LongAbove: 9000,
			Long:      price.Rates{Input: 8_000_000, CachedInput: 8_000_000, CacheWrite: 8_000_000, Output: 24_000_000},
		},
	}
	vectors := &Model{
		Name: "vectors", Embeds: true, Provider: main, ID: "v", Tokenizer: "upper_bound", Context: 8000,
		Prices: price.Table{Rates: price.Rates{Input: 20_000, CachedInput: 20_000, CacheWrite: 20_000}},
	}
	want := &Policy{
		Providers: map[string]*Provider{"main": main},
		Models:    map[string]*Model{"small": small, "large": large, "vectors": vectors},
		Features: map[string]*Feature{
			"ask": {
				Name: "ask", Model: small, System: "Be brief.", MaxOutputTokens: 500,
				AllowTools: true, AllowImages: true, AllowImageURLs: true, MaxImages: 1, Efforts: []string{"none", "low", "high"},
				Tools: []openai.Tool{{Name: "weather", Description: "Of a place.", Strict: new(false), Parameters: json.RawMessage(
					`{"type":"object","required":["place","at"],"properties":{"place":{"type":"string"},"at":{"enum":["now",null,1.50,-2,true],"description":"<&>"}},"additionalProperties":false}`)}, {Name: "now"}},
			},
			"search": {Name: "search", Model: vectors, MaxInputs: 9},
			"cv": {
				Name: "cv", Model: small, Fallback: large, MaxOutputTokens: 1000, Tiers: []string{"user"},
				AllowSystem: true, AllowResponseFormat: true,
				Quota: &Limit{"cv", Requests, 10, 24 * time.Hour},
			},
		},
		Tiers: map[string]*Tier{
			"anonymous": {
				Name: "anonymous", MaxInputChars: 2000, MaxInputTokens: 2000, MaxMessages: 16, MaxOutputTokens: 400, MaxImages: 2, MaxTools: 3, MaxInFlight: 4,
				Tokens:      &Limit{"tokens", Tokens, 5000, time.Hour},
				Requests:    &Limit{"requests", Requests, 20, time.Minute},
				ChallengeAt: 0.5, Pool: "anonymous",
				Network: &Network{
					Tokens:      &Limit{"network_tokens", Tokens, 50000, time.Hour},
					Requests:    &Limit{"network_requests", Requests, 200, time.Minute},
					MaxInFlight: 32,
				},
				Passes: &Passes{Limit{"passes", Requests, 30, time.Hour}, 30 * time.Minute, 20},
			},
			"user": {
				Name: "user", Rank: 1, MaxInputTokens: 10000, MaxMessages: 64, MaxOutputTokens: 2000, MaxImages: 100, MaxTools: 64, MaxInFlight: 8,
				Tokens: &Limit{"tokens", Tokens, 50000, time.Hour},
				Spend:  &Limit{"spend", USDMicros, 2_000_000, 24 * time.Hour},
			},
		},
		Pools: map[string]*Pool{
			"anonymous": {"anonymous", 2 * price.Dollar, time.Hour},
			"all":       {"all", 20 * price.Dollar, time.Hour},
		},
		Auth:        &Auth{"https://id.example.com/", "app", "https://id.example.com/jwks.json", "plan", map[string]string{"Pro": "user", "Pro Plan": "user"}, true},
		CORS:        &CORS{Origins: []Origin{"https://app.example.com", "http://localhost:5173"}},
		Challenge:   &Challenge{Kind: "altcha", Secret: Secret{Env: "CHALLENGE_SECRET"}},
		Fingerprint: &Fingerprint{Secret{Env: "FINGERPRINT_SECRET", SSM: "/app/fingerprint"}},
		CloudFront:  &CloudFront{[]Secret{{SSM: "/app/origin-1"}, {Secret: "app/origin-2"}}, "https://ai.example.com", true},
		Admin:       &Admin{[]string{"arn:aws:iam::123456789012:role/support"}, []AdminKey{{"ann", []Secret{{Env: "KEY_1"}, {SSM: "/app/key-2"}}}, {"bob", []Secret{{Env: "KEY_3"}}}}},
		Alarm:       &Alarm{8 * price.Dollar, 4, price.Dollar, time.Hour, "challenge", &Webhook{Secret{Env: "WEBHOOK_URL"}, &Secret{Secret: "app/webhook"}}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	notes := parse(t, said).Notes()
	check.That(t, notes == nil, "notes on a file that leaves nothing out: %q", notes)
}

// TestDefaults reads the smallest file.
func TestDefaults(t *testing.T) {
	t.Parallel()
	p := parse(t, `
providers: {cloud: {kind: bedrock}}
models: {m: {provider: cloud, id: m, context: 10000, price_per_mtok: {input: 3, cache_write: 3.75, output: 15, long_context: {above: 5000, input: 3.5, cached_input: 0.5, output: 20}}}}
features: {ask: {model: m, max_output_tokens: 500}}
tiers: {anonymous: {max_input_tokens: 1000, max_output_tokens: 600, limits: {requests: {capacity: 1, per: 1s}}}}
fingerprint: {secret: {env: F}}
challenge: {kind: hcaptcha, site_key: s, secret: {env: C}}
alarm: {}
`)
	tier := p.Tiers["anonymous"]
	check.That(t, tier.MaxInputChars == 2000 && tier.MaxMessages == 64 && tier.MaxInFlight == 4 && tier.ChallengeAt == 0 && tier.Network == nil, "tier %+v", tier)
	if want := (&Passes{Limit{"passes", Requests, 30, time.Hour}, 30 * time.Minute, 20}); !cmp.Equal(tier.Passes, want) {
		t.Errorf("passes %+v", tier.Passes)
	}
	m := p.Models["m"]
	check.That(t, m.Provider.Timeout == time.Minute && m.Provider.BaseURL == "" && m.MaxTokensField == "" && m.Tokenizer == "upper_bound",
		"model %+v of %+v", m, m.Provider)
	// Where a price is not given the dearer one that could apply is taken.
	if want := (price.Rates{Input: 3_000_000, CachedInput: 3_000_000, CacheWrite: 3_750_000, Output: 15_000_000}); m.Prices.Rates != want {
		t.Errorf("rates %+v", m.Prices.Rates)
	}
	if want := (price.Rates{Input: 3_500_000, CachedInput: 500_000, CacheWrite: 3_750_000, Output: 20_000_000}); m.Prices.Long != want {
		t.Errorf("long rates %+v", m.Prices.Long)
	}
	if want := (&Alarm{Factor: 4, Floor: price.Dollar, RepeatEvery: time.Hour, Fuse: "none"}); *p.Alarm != *want {
		t.Errorf("alarm %+v", p.Alarm)
	}

	p = parse(t, strings.Replace(good, "  factor: 4\n", "", 1))
	check.That(t, p.Alarm.Factor == 0 && p.Alarm.Threshold == 8*price.Dollar, "alarm with a threshold alone: %+v", p.Alarm)
}

func TestMillionths(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "0.0": 0, "1": 1_000_000, "0.40": 400_000, "0.000001": 1, "0.1": 100_000, "0.29": 290_000, "1.1": 1_100_000,
		"4.35": 4_350_000, "9999.999999": 9_999_999_999, "999999999.999999": 999_999_999_999_999, "70.07": 70_070_000,
	} {
		if got, ok := millionths(s); !ok || got != want {
			t.Errorf("%q: got %d, %v, want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"", ".", "0.", ".5", "-1", "+1", "1e3", "00", "01.5", "1.2.3", "1,5", " 1", "1 ", "0.0000001", "1_0", "1234567890", "\u0661", "NaN", "0x1"} {
		if got, ok := millionths(s); ok {
			t.Errorf("%q: got %d", s, got)
		}
	}
}

// What is taken of a provider whose configuration does not say whether it charges for
// errors.
func TestMayBillErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind kind.Kind
		url  string
		want bool
	}{
		{"openai", "https://api.openai.com/v1", false},
		{"openai", "https://API.OpenAI.com:443/v1", false},
		{"openai", "https://api.openai.com.example.com/v1", true},
		{"openai", "https://my.openai.azure.com/openai/v1", true},
		{"openai", "https://openrouter.ai/api/v1", true},
		{"openai", "http://127.0.0.1:11434/v1", true},
		{"openai", "https://api.anthropic.com/v1", false},
		{"openai", "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1", false},
		{"openai", "https://bedrock.example.com/v1", true},
		{"openai", "https://execute-api.eu-west-1.amazonaws.com/v1", true},
		{"anthropic", "", false},
		{"anthropic", "https://api.anthropic.com", false},
		{"anthropic", "https://proxy.example.com", true},
		{"bedrock", "", false},
		{"bedrock", "https://bedrock-runtime-fips.us-east-1.amazonaws.com", false},
		{"bedrock", "https://vpce-0a-1b.bedrock-runtime.us-east-1.vpce.amazonaws.com", false},
		{"bedrock", "https://proxy.example.com", true},
	} {
		p := Provider{Kind: test.kind, BaseURL: test.url}
		check.Equal(t, p.MayBillErrors(), test.want, "%s %s", test.kind, test.url)
		for _, said := range []bool{false, true} {
			p.BillsErrors = &said
			check.That(t, p.MayBillErrors() == said, "%s %s: what is configured does not count", test.kind, test.url)
		}
	}
}

// A model streams unless it or its provider cannot.
func TestStream(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		provider, model string
		want            bool
	}{
		{"", "", true}, {"", "stream: false", false}, {"stream: false", "", false},
		{"stream: false", "stream: true", true}, {"stream: true", "stream: false", false},
	} {
		p := parse(t, strings.NewReplacer("    timeout: 30s\n", "    timeout: 30s\n    "+test.provider+"\n",
			"    tokenizer: o200k_base\n", "    tokenizer: o200k_base\n    "+test.model+"\n").Replace(good))
		check.Equal(t, p.Models["small"].Stream, test.want, "provider %q, model %q", test.provider, test.model)
		check.Equal(t, p.Models["large"].Stream, (test.provider != "stream: false"), "provider %q", test.provider)
	}
}

// TestBounds: the dearest call that the bounds allow does not overflow.
func TestBounds(t *testing.T) {
	t.Parallel()
	const file = `
providers: {p: {kind: openai, base_url: "https://p"}}
models: {m: {provider: p, id: m, max_tokens_field: max_completion_tokens, context: 100000000, price_per_mtok: {input: "10000", output: "10000"}}}
features: {ask: {model: m, max_output_tokens: 100000000}}
tiers: {user: {max_input_tokens: 100000000, max_output_tokens: 100000000, limits: {tokens: {capacity: 1000000000000, per: 366d}, spend: {usd: 1000000, per: 366d}}}}
pools: {all: {usd: 1000000, per: 366d}}
`
	places, text := problemsOf(t, file)
	want := []string{"3 models.m.context", "5 tiers.user.limits.spend.usd", "6 pools.all.usd"}
	check.That(t, slices.Equal(places, want), "got %s", text)
	check.That(t, strings.Contains(text, "must be at least 2000000:") && strings.Contains(text, "must be at least 8000000:"), "wrong amounts: %s", text)
}

func TestWorstCase(t *testing.T) {
	t.Parallel()
	p := parse(t, good)
	for _, test := range []struct {
		feature, tier string
		tokens        int64
		money         price.Pico
	}{
		{"ask", "anonymous", 2400, 2000*400_000 + 400*1_600_000}, // the tier's cap is the smaller one
		{"ask", "user", 10500, 10000*400_000 + 500*1_600_000},    // the feature's is
		{"cv", "user", 11000, 10000*8_000_000 + 1000*24_000_000}, // the fallback is dearer, at long rates
	} {
		tokens, money := p.WorstCase(p.Features[test.feature], p.Tiers[test.tier])
		check.That(t, tokens == test.tokens && money == test.money,
			"%s for %s: got %d, %s, want %d, %s", test.feature, test.tier, tokens, money, test.tokens, test.money)
	}
}

func TestQueries(t *testing.T) {
	t.Parallel()
	p := parse(t, good)
	if got := p.FeatureNames("user"); !slices.Equal(got, []string{"ask", "cv"}) {
		t.Errorf("features of user: %q", got)
	}
	if got := p.FeatureNames("anonymous"); !slices.Equal(got, []string{"ask"}) {
		t.Errorf("features of anonymous: %q", got)
	}
	all, own := p.Pools["all"], p.Pools["anonymous"]
	if got := p.PoolsFor(p.Tiers["anonymous"]); !slices.Equal(got, []*Pool{all, own}) {
		t.Errorf("pools of anonymous: %v", got)
	}
	if got := p.PoolsFor(p.Tiers["user"]); !slices.Equal(got, []*Pool{all}) {
		t.Errorf("pools of user: %v", got)
	}
	check.Equal(t, all.Burst(), 5*price.Dollar, "burst")
	check.Equal(t, p.LongestPeriod(), 24*time.Hour, "longest period")
	for _, change := range [][2]string{
		{"per: 24h}\ntiers", "per: 90d}\ntiers"},
		{"tokens: {capacity: 5000, per: 1h}", "tokens: {capacity: 5000, per: 90d}"},
		{"requests: {capacity: 20, per: 1m}", "requests: {capacity: 20, per: 90d}"},
		{`spend: {usd: "2.00", per: 24h}`, `spend: {usd: "2.00", per: 90d}`},
		{"requests: {capacity: 200, per: 1m}", "requests: {capacity: 200, per: 90d}"},
		{"passes: {capacity: 30, per: 1h,", "passes: {capacity: 30, per: 90d,"},
		{"passes: {capacity: 30, per: 1h, ttl: 30m, calls: 20}", "passes: {capacity: 30, per: 90d, ttl: 1d, calls: 365}"},
		{`all: {usd: "20.00", per: 1h}`, `all: {usd: "20.00", per: 90d}`},
	} {
		if got := parse(t, strings.Replace(good, change[0], change[1], 1)).LongestPeriod(); got != 90*day {
			t.Errorf("longest period with %s: %s", change[1], got)
		}
	}
}

// The longest timeout that a file may have is one whose calls the ledger waits for.
func TestLongestCall(t *testing.T) {
	t.Parallel()
	p := parse(t, strings.Replace(good, "timeout: 30s", "timeout: 15m", 1))
	got := p.LongestCall()
	check.That(t, got >= 15*time.Minute && got <= ledger.LongestCall, "the longest call lasts %s, the ledger waits for %s", got, ledger.LongestCall)
}

func TestNotes(t *testing.T) {
	t.Parallel()
	toLarge := said[strings.Index(said, "    base_url:"):strings.Index(said, "    price_per_mtok: {")]
	cut := func(from, to string) string { return good[strings.Index(good, from):strings.Index(good, to)] }
	for _, test := range []struct {
		name, old, new string
		want           []string // each the beginning of a note, in order
	}{
		{"auth", cut("auth:", "cors:"), "", []string{"auth is left out: the tiers beyond anonymous (user) do not exist"}},
		{"cors", cut("cors:", "challenge:\n"), "", []string{"cors is left out: cross-origin callers do not exist"}},
		{"pools", cut("pools:", "auth:"), "", []string{"pools is left out: ceilings do not exist"}},
		{"pool all", `  all: {usd: "20.00", per: 1h}` + "\n", "", []string{"pools has no all and tiers.user no pool"}},
		{"challenge", cut("challenge:\n", "fingerprint:"), "", []string{
			"challenge is left out: challenges do not exist", "tiers.anonymous.challenge_at has no effect",
			"tiers.anonymous.passes has no effect", "alarm.fuse is challenge",
		}},
		{"network", cut("    network:", "    passes:"), "", []string{"tiers.anonymous.network is left out"}},
		{"cloudfront", cut("cloudfront:", "admin:"), "", []string{"cloudfront is left out: TLS signals do not exist"}},
		{"admin", cut("admin:", "alarm:"), "", []string{"admin is left out: the ARN allow-list does not exist"}},
		{"alarm", good[strings.Index(good, "alarm:"):], "", []string{"alarm is left out: the alarm does not exist"}},
		{"anonymous", cut("  anonymous:\n", "  user:\n"), "", []string{"tiers.anonymous is left out: a caller without a token gets 401"}},
		{"http", "base_url: https:", "base_url: http:", []string{"providers.main.base_url is http"}},
		{"OpenAI's errors", "    bills_errors: false\n", "", []string{"providers.main.bills_errors is left out: false is taken, since api.openai.com charges nothing for calls"}},
		{"somebody's errors", toLarge, strings.NewReplacer("api.openai.com", "other.example.com", "    bills_errors: false\n", "").Replace(toLarge) +
			"    max_tokens_field: max_tokens\n", []string{
			"providers.main.bills_errors is left out: true is taken, since other.example.com may charge for calls that it answers with 400, 422, 500 or 502."}},
		{"no stream options", "    timeout: 30s\n", "    timeout: 30s\n    stream_options: false\n", []string{"providers.main.stream_options is false: a stream that tells of no usage by itself is charged"}},
		{"no stream options and no stream", "    timeout: 30s\n", "    timeout: 30s\n    stream_options: false\n    stream: false\n", nil},
		{"a deployment without a version", "openai.com/v1", "openai.com/openai/deployments/d", []string{"providers.main.base_url has no ?api-version="}},
		{"a deployment with one", "openai.com/v1", "openai.com/openai/deployments/d?api-version=1", nil},
		{"a tier of its own price", "    context: 20000\n    max", "    context: 20000\n    extra: {service_tier: priority}\n    max", []string{"models.small.extra.service_tier changes what main charges"}},
		{"a budget of thinking", "    context: 20000\n    max", "    context: 20000\n    extra: {thinking: {type: enabled, budget_tokens: 2000}}\n    max", []string{"models.small.extra.thinking.budget_tokens (2000) must be below the output cap"}},
		{"thinking without a budget", "    context: 20000\n    max", "    context: 20000\n    extra: {thinking: off}\n    max", nil},
		{"reasoning that quotes", "    system: Be brief.\n", "    system: Be brief.\n    reasoning: true\n", []string{"features.ask.reasoning is true: callers see what the model thinks"}},
		{"tools and images of nobody", toPrices + stretch("      input: \"0.40\"", toAsk), "    image_tokens: {low: 8, high: 14}\n" + toPrices + stretch("      input: \"0.40\"", toAsk) + "    allow: [tools, images]\n    tiers: [anonymous]\n", []string{
			"features.ask.allow has tools, but nobody who may call it may send any: see max_tools", "features.ask.allow has images, but nobody who may call it may send any: see max_images"}},
		{"tools of some", "    system: Be brief.\n", "    system: Be brief.\n    allow: [tools]\n", nil},
		{"reasoning with nothing to quote", "    system: Be brief.\n", "    reasoning: true\n", nil},
		// 1,000 tokens at 40 a second take 25 s.
		{"just in time", "timeout: 30s", "timeout: 25s", nil},
		{"too long for the timeout", "timeout: 30s", "timeout: 24900ms", []string{
			"features.cv may answer with 1000 tokens, which takes more than 40 a second to fit providers.main.timeout (24.9s): longer answers end in a timeout."}},
		{"too long in one piece", "timeout: 30s", "timeout: 24900ms\n    stream: false", []string{
			"features.cv may answer with 1000 tokens, which takes more than 40 a second to fit providers.main.timeout (24.9s): longer answers end in a timeout, and"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := parse(t, strings.Replace(said, test.old, test.new, 1)).Notes()
			check.That(t, slices.EqualFunc(got, test.want, strings.HasPrefix), "got  %q\nwant %q", got, test.want)
		})
	}
	p := parse(t, strings.Replace(good, cut("pools:", "auth:"), "", 1))
	check.Equal(t, p.Tiers["anonymous"].Pool, "", "pool … of a tier without pools")
}

// What is open to whom.
func TestAccess(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ask, anonymous string // what the feature says beside, and the tier
		want           []string
	}{
		{"", "", []string{"ask for anonymous, user: text"}},
		{"    tiers: [user]\n", "", []string{"ask for user: text"}},
		{"    tools: [{name: a}, {name: b}]\n", "", []string{"ask for anonymous, user: text, results of your own tools"}},
		{"    allow: [tools, images]\n    max_images: 1\n    reasoning_effort: [low, none]\n", "", []string{
			"ask for anonymous: text, reasoning_effort (none or low)", "ask for user: text, tools (up to 64), images (up to 1), reasoning_effort (none or low)"}},
		{"    allow: [tools, image_urls, system]\n", "    max_tools: 9\n    max_images: 2\n", []string{
			"ask for anonymous: text, system messages, tools (up to 9), images (up to 2, by address too)",
			"ask for user: text, system messages, tools (up to 64), images (up to 4, by address too)"}},
	} {
		p := parse(t, edit(good, toAsk, toAsk+test.ask, toPrices, "    image_tokens: {low: 85, high: 145}\n"+toPrices, "    max_messages: 16\n", "    max_messages: 16\n"+test.anonymous))
		check.Diff(t, cmp.Diff(append(test.want, "cv for user: text, system messages, response_format"), p.Access()), "access")
	}
	p := parse(t, edit(good, toFeatures, embedding(`price_per_mtok: {input: 1}`, ``), "auth:\n", "backends: {web: {secrets: [{env: B}], pool: web}}\nauth:\n", "pools:\n", "pools:\n  web: {usd: 4, per: 1h}\n"))
	check.Equal(t, p.Access()[2], "search for anonymous, user: texts to embed (up to 2048)", "of embeddings")
	p.Auth = nil
	check.Equal(t, p.Access()[1], "cv for nobody", "of users where there are none")
}

// TestSample: the file that we hand out passes its own check, holds no secret,
// and keeps what its comments promise.
func TestSample(t *testing.T) {
	t.Parallel()
	p, err := Load(sample)
	check.OK(t, err)
	for _, note := range p.Notes() {
		check.That(t, strings.HasPrefix(note, "cloudfront ") || strings.HasPrefix(note, "admin "), "unexpected note: %s", note)
	}
	if got := p.FeatureNames("pro"); !slices.Equal(got, []string{"cv", "docqa", "linkedin"}) {
		t.Errorf("features %q", got)
	}
	if got := p.FeatureNames(Anonymous); !slices.Equal(got, []string{"docqa"}) {
		t.Errorf("features of anonymous %q", got)
	}
	for _, secret := range []Secret{*p.Providers["openai"].APIKey, p.Challenge.Secret, p.Fingerprint.Secret} {
		check.That(t, secret.Env != "", "%+v is not in the environment, where the local run looks", secret)
	}
	tokens, _ := p.WorstCase(p.Features["docqa"], p.Tiers[Anonymous])
	check.Equal(t, p.Tiers[Anonymous].Tokens.Capacity/tokens, 4, "of the largest calls at once")
}

// TestSampleComments uncomments what the sample shows in comments: that must
// pass too.
func TestSampleComments(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(sample)
	check.OK(t, err)
	lines := strings.Split(string(data), "\n")
	uncommented := 0
	for i, line := range lines {
		for _, key := range []string{"# fallback:", "# allow: [", "# image_tokens:", "# max_images:", "# max_tools:", "# reasoning_effort:", "# tools:", "#   - name: find_job", "#     description: F", "#     parameters: {t",
			"# vectors: ", "#   kind: embedding", "#   provider: openai", "#   id: text-", "#   tokenizer: cl100k", "#   context: 8192", "#   price_per_mtok: {input: \"0.02\"}", "# search:",
			"# cloudfront:", "#   origin_secrets:", "# admin:", "#   allow_arns:", "#   keys:", "#   webhook:"} {
			if strings.HasPrefix(strings.TrimSpace(line), key) {
				lines[i] = strings.Replace(line, "# ", "", 1)
				uncommented++
			}
		}
	}
	check.Equal(t, uncommented, 26, "found … settings in comments")
	notes := parse(t, strings.Join(lines, "\n")).Notes()
	check.That(t, notes == nil, "notes: %q", notes)
}

func TestLoad(t *testing.T) {
	t.Parallel()
	if _, err := Load(filepath.Join(t.TempDir(), "absent.yaml")); !os.IsNotExist(err) {
		t.Errorf("absent file: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	check.OK(t, os.WriteFile(large, []byte(good+"#"+strings.Repeat("x", maxSize)), 0o600))
	if _, err := Load(large); err == nil || !strings.Contains(err.Error(), "1 MiB") {
		t.Errorf("large file: %v", err)
	}
}

func BenchmarkParseSample(b *testing.B) {
	data, err := os.ReadFile(sample)
	check.OK(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}
