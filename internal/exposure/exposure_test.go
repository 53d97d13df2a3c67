package exposure

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var update = flag.Bool("update", false, "write testdata anew")

func parse(t *testing.T, file string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(file))
	check.OK(t, err)
	return p
}

// small has round figures. The dearest call is 1,000 x $1 + 100 x $10 a million
// = $0.002; 456 a minute are $54.72 an hour.
const small = `
providers: {main: {kind: openai, base_url: "https://api.example.com/v1"}}
models:
  m: {provider: main, id: m, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "10"}}
features:
  ask: {model: m, max_output_tokens: 100}
tiers:
  anonymous:
    max_input_tokens: 1000
    max_output_tokens: 200
    limits: {tokens: {capacity: 10000, per: 1h}, requests: {capacity: 20, per: 1m}}
    network: {tokens: {capacity: 50000, per: 1h}}
    pool: anonymous
  user:
    max_input_tokens: 1000
    max_output_tokens: 100
    limits: {requests: {capacity: 60, per: 1m}, spend: {usd: "2.40", per: 24h}}
pools: {anonymous: {usd: "3", per: 1h}, all: {usd: "20", per: 1h}}
auth: {issuer: "https://id.example.com", audience: a, jwks_url: "https://id.example.com/keys"}
fingerprint: {secret: {env: F}}
`

// with changes small: pairs of old, which must be there, and new.
func with(t *testing.T, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		check.Must(t, strings.Count(small, pairs[i]) == 1, "%q is not in the file once", pairs[i])
	}
	return strings.NewReplacer(pairs...).Replace(small)
}

const (
	noPools   = `pools: {anonymous: {usd: "3", per: 1h}, all: {usd: "20", per: 1h}}`
	tierPool  = "    pool: anonymous\n"
	network   = "    network: {tokens: {capacity: 50000, per: 1h}}\n"
	challenge = "fingerprint: {secret: {env: F}}"
	clients   = "{tokens: {capacity: 10000, per: 1h}, requests: {capacity: 20, per: 1m}}"
)

// find is a report's only line of somebody.
func find(t *testing.T, r Report, who Who, tier, feature string) Line {
	t.Helper()
	var found []Line
	for _, l := range r.Lines {
		if l.Who == who && l.Tier == tier && l.Feature == feature {
			found = append(found, l)
		}
	}
	check.Must(t, len(found) == 1, "%d lines of %s %s %s", len(found), who, tier, feature)
	return found[0]
}

// answeredCalls are a line's answered calls in short: today, answered, by.
func (l Line) answeredCalls() string {
	return l.Without.String() + ", " + l.Answered.String() + ", " + cmp.Or(l.AnsweredBy, unbounded)
}

// whateverIsBilled is the rest: with, by.
func (l Line) whateverIsBilled() string { return l.With.String() + ", " + l.by() }

func TestByHand(t *testing.T) {
	t.Parallel()
	const passes = challenge + "\nchallenge: {kind: altcha, secret: {env: C}}"
	const givenPasses = network + "    passes: {capacity: 10, per: 1h, ttl: 30m, calls: 5}\n"
	for _, test := range []struct {
		name          string
		changes       []string
		who           Who
		tier, feature string
		answered      string // today, with, by
		billed        string // with, by
	}{
		// 10,000 at once and 10,000 in the hour, all of it output at $10.
		{"client", nil, Client, "anonymous", "ask", "54.72, 0.20, tokens", "2.44, requests"},
		{"client, any feature", nil, Client, "anonymous", "", "54.72, 0.20, tokens", "2.44, requests"},
		// 1 + 60 x 1 calls of $0.002.
		{"requests are tighter", []string{"capacity: 20, per: 1m", "capacity: 1, per: 1m"}, Client, "anonymous", "ask", "54.72, 0.122, requests", "0.122, requests"},
		{"the network is tighter", []string{"capacity: 50000", "capacity: 2000"}, Client, "anonymous", "ask", "54.72, 0.04, network_tokens", "2.44, requests"},
		{"network", nil, Network, "anonymous", "ask", "54.72, 1.00, network_tokens", "3.00, pool anonymous"},
		{"thousand networks", nil, ManyNetworks, "anonymous", "ask", "54,720.00, 3.00, pool anonymous", "3.00, pool anonymous"},
		{"all anonymous", nil, AllAnonymous, "anonymous", "ask", "no bound, 3.00, pool anonymous", "3.00, pool anonymous"},
		{"the pool of all is tighter", []string{`all: {usd: "20"`, `all: {usd: "2"`}, AllAnonymous, "anonymous", "ask", "no bound, 2.00, pool all", "2.00, pool all"},
		// $2.40 at once, $0.10 in the hour; 60 + 3,600 calls would be $7.32.
		{"user", nil, OneUser, "user", "ask", "54.72, 2.50, spend", "2.50, spend"},
		{"user, long period", []string{"per: 24h", "per: 240h"}, OneUser, "user", "ask", "54.72, 2.41, spend", "2.41, spend"},
		{"everybody", nil, Everybody, "", "", "no bound, 20.00, pool all", "20.00, pool all"},

		// 10 + 15 passes in an hour and the half before it, each 5 calls of $0.002.
		{"passes", []string{network, givenPasses, challenge, passes}, Network, "anonymous", "ask", "54.72, 1.25, network_tokens 1.00 + 25 passes x 0.01", "3.00, pool anonymous"},
		// A pass has 10,000 + 5,000 tokens of $10 a million in its half hour.
		{"passes of many calls", []string{network, strings.Replace(givenPasses, "calls: 5", "calls: 500", 1), challenge, passes},
			Network, "anonymous", "ask", "54.72, 3.00, pool anonymous", "3.00, pool anonymous"},
		// Of a pass that lives 2 h only an hour counts: 20,000 tokens; 10 + 30 passes.
		{"passes of a long life", []string{network, strings.NewReplacer("calls: 5", "calls: 500", "ttl: 30m", "ttl: 2h").Replace(givenPasses), challenge, passes},
			Network, "anonymous", "ask", "54.72, 3.00, pool anonymous", "3.00, pool anonymous"},
		// 200 + 12,000 calls of the network, and 620 of each pass in its half hour: calls that
		// gave nothing are not taken from a pass.
		{"passes of calls that are billed and fail", []string{network, strings.Replace(givenPasses, "50000, per: 1h}", "50000, per: 1h}, requests: {capacity: 200, per: 1m}", 1), challenge, passes},
			Network, "anonymous", "ask", "54.72, 1.25, network_tokens 1.00 + 25 passes x 0.01", "3.00, pool anonymous; its limits: network_requests 24.40 + 25 passes x 1.24 = 55.40"},
		{"thousand networks that are billed and fail", []string{network, strings.Replace(network, "50000, per: 1h}", "50000, per: 1h}, requests: {capacity: 200, per: 1m}", 1)},
			ManyNetworks, "anonymous", "ask", "54,720.00, 3.00, pool anonymous", "3.00, pool anonymous; its limits: 1,000 x 24.40 = 24,400.00"},
		{"passes without challenges", []string{network, givenPasses}, Network, "anonymous", "ask", "54.72, 1.00, network_tokens", "3.00, pool anonymous"},

		{"no network limit", []string{network, ""}, Network, "anonymous", "ask", "54.72, 3.00, pool anonymous", "3.00, pool anonymous"},
		{"no pools: networks", []string{noPools, "", tierPool, ""}, ManyNetworks, "anonymous", "ask", "no bound, 1,000.00, 1,000 x 1.00", "no bound, nothing"},
		{"no pools: all anonymous", []string{noPools, "", tierPool, ""}, AllAnonymous, "anonymous", "ask", "no bound, no bound, nothing", "no bound, nothing"},
		{"no pools: everybody", []string{noPools, "", tierPool, ""}, Everybody, "", "", "no bound, no bound, nothing", "no bound, nothing"},
		{"no pools, no network limit", []string{noPools, "", tierPool, "", network, ""}, Network, "anonymous", "ask", "no bound, no bound, nothing", "no bound, nothing"},

		// Without `all`, everybody is the sum of the tiers' pools, each counted once.
		{"a tier without a pool", []string{`, all: {usd: "20", per: 1h}`, ""}, Everybody, "", "", "no bound, no bound, nothing", "no bound, nothing"},
		{"a pool for each tier", []string{`all: {usd: "20"`, `users: {usd: "5"`, "  user:\n", "  user:\n    pool: users\n"}, Everybody, "", "", "no bound, 8.00, the tiers' pools", "8.00, the tiers' pools"},
		{"one pool for two tiers", []string{`, all: {usd: "20", per: 1h}`, "", "  user:\n", "  user:\n    pool: anonymous\n"}, Everybody, "", "", "no bound, 3.00, the tiers' pools", "3.00, the tiers' pools"},
		{"tiers below all", []string{"  user:\n", "  user:\n    pool: anonymous\n"}, Everybody, "", "", "no bound, 3.00, the tiers' pools", "3.00, the tiers' pools"},
		// Without auth there are no users, so their tier needs no pool.
		{"no auth", []string{`, all: {usd: "20", per: 1h}`, "", `auth: {issuer: "https://id.example.com", audience: a, jwks_url: "https://id.example.com/keys"}`, ""},
			Everybody, "", "", "no bound, 3.00, the tiers' pools", "3.00, the tiers' pools"},

		// A quarter at once; the rest refills in P + 65 s.
		{"pool of a day", []string{`all: {usd: "20", per: 1h}`, `all: {usd: "20", per: 24h}`}, Everybody, "", "", "no bound, 5.64, pool all", "5.64, pool all"},         // 5 + 15 x 3665/86465
		{"pool of ten minutes", []string{`all: {usd: "20", per: 1h}`, `all: {usd: "20", per: 10m}`}, Everybody, "", "", "no bound, 87.67, pool all", "87.67, pool all"}, // 5 + 15 x 3665/665
		{"free models", []string{`{input: "1", output: "10"}`, `{input: "0", output: "0"}`, noPools, "", tierPool, "", network, ""}, AllAnonymous, "anonymous", "ask", "0.00, 0.00, free models", "0.00, free models"},
		{"free models, everybody", []string{`{input: "1", output: "10"}`, `{input: "0", output: "0"}`, noPools, "", tierPool, ""}, Everybody, "", "", "0.00, 0.00, free models", "0.00, free models"},
		{"a limit above what a script sends", []string{clients, "{requests: {capacity: 60000, per: 1h}}", network, "", `{usd: "3"`, `{usd: "3000"`, `{usd: "20"`, `{usd: "3000"`}, // 120,000 x 0.002
			Client, "anonymous", "ask", "240.00, 240.00, requests", "240.00, requests"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := Of(parse(t, with(t, test.changes...)))
			l := find(t, r, test.who, test.tier, test.feature)
			check.Equal(t, l.answeredCalls(), test.answered, "answered calls: got")
			check.Equal(t, l.whateverIsBilled(), test.billed, "whatever is billed: got")
		})
	}
}

// A caller mixes features to his liking: the dearest call of one, the dearest
// tokens of another.
func TestAnyFeature(t *testing.T) {
	t.Parallel()
	r := Of(parse(t, with(t,
		"features:\n", "  long: {provider: main, id: l, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: \"12\", output: \"2\"}}\nfeatures:\n  read: {model: long, max_output_tokens: 100}\n",
		"capacity: 20, per: 1m", "capacity: 1, per: 1h", // two calls
	)))
	for feature, want := range map[string]string{
		"ask":  "54.72, 0.004, requests",
		"read": "333.80, 0.0244, requests",
		"":     "333.80, 0.0244, requests",
	} {
		check.Equal(t, find(t, r, Client, "anonymous", feature).answeredCalls(), want, "%q: got", feature)
	}
}

// An embedding is input alone. Images and tools are input, too, and cost no more than the
// most of it that the tier may send.
func TestBeyondText(t *testing.T) {
	t.Parallel()
	r := Of(parse(t, with(t,
		"features:\n", "  vectors: {kind: embedding, provider: main, id: v, context: 100, price_per_mtok: {input: \"0.5\"}}\nfeatures:\n  search: {model: vectors}\n"+
			"  see: {model: m, max_output_tokens: 100, allow: [tools, images], max_images: 2}\n",
		"id: m,", "id: m, image_tokens: {low: 9, high: 90},",
	)))
	// 456 x 60 calls of 1,000 x $0.50 a million; 20,000 tokens of it; 20 + 1,200 calls.
	search, see := find(t, r, Client, "anonymous", "search"), find(t, r, Client, "anonymous", "see")
	check.Equal(t, search.answeredCalls(), "13.68, 0.01, tokens", "embeddings")
	check.Equal(t, search.whateverIsBilled(), "0.61, requests", "embeddings that fail")
	check.Equal(t, see.answeredCalls(), "54.72, 0.20, tokens", "images and tools")
}

// The fallback may answer, so the dearer of both counts.
func TestFallback(t *testing.T) {
	t.Parallel()
	r := Of(parse(t, with(t,
		"features:\n", "  other: {provider: main, id: l, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: \"1\", output: \"30\"}}\nfeatures:\n",
		"ask: {model: m,", "ask: {model: m, fallback: other,",
	)))
	if got, want := find(t, r, Client, "anonymous", "ask").answeredCalls(), "109.44, 0.60, tokens"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		changes []string
		want    string
	}{
		// The user costs more than the network.
		{"bounded", nil, "One script can cost you $54.72 an hour today; with this configuration $2.50, $3.00 if the provider bills what it fails, and everybody together at most $20.00."},
		{"bounded by dollars", []string{tierPool, "", "tokens: {capacity: 10000, per: 1h}, requests", "spend: {usd: \"1\", per: 1h}, requests", "{tokens: {capacity: 50000, per: 1h}}", "{requests: {capacity: 10, per: 1h}}"},
			"One script can cost you $54.72 an hour today; with this configuration $2.50, and everybody together at most $20.00."},
		{"no pools", []string{noPools, "", tierPool, ""}, "One script can cost you $54.72 an hour today; with this configuration $2.50, but nothing bounds it if the provider bills what it fails: set pools."},
		{"no pools, bounded by requests", []string{noPools, "", tierPool, "", "{tokens: {capacity: 50000, per: 1h}}", "{requests: {capacity: 10, per: 1h}}"},
			"One script can cost you $54.72 an hour today; with this configuration $2.50, but nothing bounds everybody together: set pools."},
		{"nothing", []string{noPools, "", tierPool, "", network, ""}, "One script can cost you $54.72 an hour today; with this configuration nothing bounds it: set pools, and tiers.anonymous.network."},
		{"nobody", []string{"ask: {model: m,", "ask: {model: m, tiers: [user],", `auth: {issuer: "https://id.example.com", audience: a, jwks_url: "https://id.example.com/keys"}`, ""}, "Nobody can call anything with this configuration."},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := Of(parse(t, with(t, test.changes...)))
			check.Equal(t, r.Summary, test.want, "r.Summary")
			var b bytes.Buffer
			err := r.Write(&b)
			check.That(t, err == nil && strings.HasPrefix(b.String(), test.want+"\n"), "%v\n%s", err, &b)
		})
	}
}

func TestSuggestedAlarm(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ everybody, want Amount }{
		{20 * dollar, 8 * dollar},
		{Amount(5_638_000_000_000), Amount(2_250_000_000_000)}, // down to a cent
		{dollar / 1000, dollar / 2500},                         // too little for cents
		{Unbounded, Unbounded},
		{0, Unbounded},
	} {
		got := suggest(test.everybody)
		check.That(t, got.Threshold == test.want && got.Factor == 4 && got.Why != "", "%s: %+v, want %s", test.everybody, got, test.want)
	}
}

const dollar = Amount(price.Dollar)

// TestSample holds the text of the configuration that we hand out. After a change
// that is meant: go test ./internal/exposure -run TestSample -update
func TestSample(t *testing.T) {
	t.Parallel()
	p, err := policy.Load("../../tokenfuse.yaml")
	check.OK(t, err)
	r := Of(p)
	var got bytes.Buffer
	check.OK(t, r.Write(&got))
	const golden = "testdata/sample.txt"
	if *update {
		check.OK(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	check.OK(t, err)
	if diff := gocmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
	check.Equal(t, r.Alarm.Threshold, Amount(p.Alarm.Threshold), "the sample's alarm is %s and we suggest", p.Alarm.Threshold)
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, file := range []string{small, with(t, noPools, "", tierPool, "")} {
		r := Of(parse(t, file))
		data, err := json.Marshal(r)
		check.OK(t, err)
		var back Report
		check.OK(t, json.Unmarshal(data, &back))
		if diff := gocmp.Diff(r, back); diff != "" {
			t.Error(diff)
		}
	}
	// The names that programs rely on.
	data, err := json.Marshal(Of(parse(t, small)).Lines[0])
	want := `{"who":"client","tier":"anonymous","dearest_call_usd":"0.002","without_usd_per_hour":"54.72","with_usd_per_hour":"2.44","bounded_by":"requests","limits_usd_per_hour":"2.44","limits_bounded_by":"requests","answered_usd_per_hour":"0.2","answered_bounded_by":"tokens"}`
	check.That(t, err == nil && string(data) == want, "got  %s, %v\nwant %s", data, err, want)
}
