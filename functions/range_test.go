// Package functions tests what the functions have in common.
package functions

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/functions/clearlimit/admin"
	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/functions/spendalarm/alarm"
	"github.com/tokenfuse/tokenfuse/internal/exposure"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/stagetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// file is a policy of which each ${setting} can be set.
const file = `
providers:
  p: {kind: openai, base_url: "${upstream}/v1", timeout: ${timeout}}
models:
  m:
    provider: p
    id: test-model
    tokenizer: o200k_base
    context: ${context}
    max_tokens_field: max_tokens
    price_per_mtok:
      input: "${input}"
      cached_input: "${cached_input}"
      cache_write: "${cache_write}"
      output: "${output}"
      long_context:
        above: ${above}
        input: "${long_input}"
        cached_input: "${long_cached_input}"
        cache_write: "${long_cache_write}"
        output: "${long_output}"
features:
  ask:
    model: m
    max_output_tokens: ${feature_output}
    quota:
      capacity: ${quota}
      per: ${quota_per}
tiers:
  anonymous:
    max_input_chars: ${chars}
    max_input_tokens: ${tier_input}
    max_messages: ${messages}
    max_output_tokens: ${tier_output}
    max_in_flight: ${in_flight}
    challenge_at: ${challenge_at}
    pool: anonymous
    limits:
      tokens:
        capacity: ${tokens}
        per: ${tokens_per}
      requests:
        capacity: ${requests}
        per: ${requests_per}
      spend:
        usd: ${spend}
        per: ${spend_per}
    network:
      max_in_flight: ${network_in_flight}
      tokens:
        capacity: ${network_tokens}
        per: ${network_tokens_per}
      requests:
        capacity: ${network_requests}
        per: ${network_requests_per}
    passes:
      capacity: ${passes}
      per: ${passes_per}
      ttl: ${ttl}
      calls: ${calls}
  user:
    max_input_tokens: 1000
    max_output_tokens: 100
    limits: {requests: {capacity: 60, per: 1m}}
pools:
  anonymous:
    usd: ${pool}
    per: ${pool_per}
auth: {issuer: "${issuer}", audience: test, jwks_url: "${issuer}/keys"}
challenge: {kind: altcha, secret: {env: SECRET}}
fingerprint: {secret: {env: SECRET}}
alarm:
  threshold_usd: ${threshold}
  factor: ${factor}
  floor_usd: ${floor}
  repeat_every: ${repeat_every}
`

// usual are the settings where a row says nothing. The addresses are those of a stage.
var usual = map[string]string{
	"upstream": "https://upstream.example.com", "issuer": "https://issuer.example.com",
	"timeout": "20s", "context": "1000000",
	"input": "0.40", "cached_input": "0.10", "cache_write": "0.40", "output": "1.60",
	"above": "200000", "long_input": "0.80", "long_cached_input": "0.20", "long_cache_write": "0.80", "long_output": "3.20",
	"feature_output": "800", "quota": "10", "quota_per": "24h",
	"chars": "2000", "tier_input": "2000", "messages": "16", "tier_output": "400", "in_flight": "4", "challenge_at": "1000",
	"tokens": "10000", "tokens_per": "1h", "requests": "20", "requests_per": "1m", "spend": "2.00", "spend_per": "24h",
	"network_in_flight": "32", "network_tokens": "100000", "network_tokens_per": "1h", "network_requests": "200", "network_requests_per": "1m",
	"passes": "30", "passes_per": "1h", "ttl": "30m", "calls": "20",
	"pool": "2.00", "pool_per": "1h",
	"threshold": "8.00", "factor": "4", "floor": "1.00", "repeat_every": "1h",
}

// with is a policy's text with some settings.
func with(settings ...map[string]string) string {
	return os.Expand(file, func(name string) string {
		value, ok := usual[name]
		for _, s := range settings {
			if v, set := s[name]; set {
				value, ok = v, true
			}
		}
		if !ok {
			panic("no setting " + name)
		}
		return value
	})
}

// row is the range of a setting that `tokenfuse check` allows.
type row struct {
	setting, path   string
	least, most     string
	below, beyond   string            // "": there is nothing beyond that end
	atLeast, atMost map[string]string // what must go with the ends for the whole to be right
	challenged      bool              // an anonymous caller without a pass is, at the least
	slow            bool              // the least may be too short for an answer
}

// dear lets a call cost whatever it may.
var dear = map[string]string{"spend": "1000000", "pool": "9007", "tier_input": "100", "tier_output": "100"}

var ranges = []row{
	{setting: "timeout", path: "providers.p.timeout", least: "100ms", most: "15m", below: "99ms", beyond: "15m1ms", slow: true},
	{setting: "context", path: "models.m.context", least: "2400", most: "100000000", below: "2399", beyond: "100000001"},
	{setting: "input", path: "models.m.price_per_mtok.input", least: "0", most: "10000", below: "-1", beyond: "10000.000001", atMost: dear},
	{setting: "cached_input", path: "models.m.price_per_mtok.cached_input", least: "0", most: "10000", below: "-1", beyond: "10000.000001", atMost: dear},
	{setting: "cache_write", path: "models.m.price_per_mtok.cache_write", least: "0", most: "10000", below: "-1", beyond: "10000.000001", atMost: dear},
	{setting: "output", path: "models.m.price_per_mtok.output", least: "0", most: "10000", below: "-1", beyond: "10000.000001", atMost: dear},
	{setting: "above", path: "models.m.price_per_mtok.long_context.above", least: "1", most: "100000000", below: "0", beyond: "100000001"},
	{setting: "long_input", path: "models.m.price_per_mtok.long_context.input", least: "0", most: "10000", below: "-1", beyond: "10000.000001"},
	{setting: "long_cached_input", path: "models.m.price_per_mtok.long_context.cached_input", least: "0", most: "10000", below: "-1", beyond: "10000.000001"},
	{setting: "long_cache_write", path: "models.m.price_per_mtok.long_context.cache_write", least: "0", most: "10000", below: "-1", beyond: "10000.000001"},
	{setting: "long_output", path: "models.m.price_per_mtok.long_context.output", least: "0", most: "10000", below: "-1", beyond: "10000.000001"},
	{setting: "feature_output", path: "features.ask.max_output_tokens", least: "1", most: "100000000", below: "0", beyond: "100000001"},
	{setting: "tier_output", path: "tiers.anonymous.max_output_tokens", least: "1", most: "100000000", below: "0", beyond: "100000001"},
	// The largest call: all of the largest context, at the highest price that fits the largest pool.
	{setting: "tier_input", path: "tiers.anonymous.max_input_tokens", least: "12", most: "99900000", below: "11", beyond: "100000001",
		atMost: map[string]string{"context": "100000000", "tier_output": "100000", "feature_output": "100000", "tokens": "100000000", "network_tokens": "100000000",
			"spend": "1000000", "pool": "9007", "input": "20", "cache_write": "20", "output": "20", "long_input": "20", "long_cache_write": "20", "long_output": "20"}},
	{setting: "chars", path: "tiers.anonymous.max_input_chars", least: "1", most: "100000000", below: "0", beyond: "100000001"},
	{setting: "messages", path: "tiers.anonymous.max_messages", least: "1", most: "10000", below: "0", beyond: "10001"},
	{setting: "in_flight", path: "tiers.anonymous.max_in_flight", least: "1", most: "1000", below: "0", beyond: "1001"},
	{setting: "challenge_at", path: "tiers.anonymous.challenge_at", least: "0.000001", most: "1000", below: "0", beyond: "1000.000001", challenged: true},
	{setting: "quota", path: "features.ask.quota.capacity", least: "1", most: "1000000000000", below: "0", beyond: "1000000000001"},
	{setting: "quota_per", path: "features.ask.quota.per", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
	{setting: "tokens", path: "tiers.anonymous.limits.tokens.capacity", least: "2400", most: "1000000000000", below: "2399", beyond: "1000000000001"},
	{setting: "tokens_per", path: "tiers.anonymous.limits.tokens.per", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
	{setting: "requests", path: "tiers.anonymous.limits.requests.capacity", least: "1", most: "1000000000000", below: "0", beyond: "1000000000001"},
	{setting: "requests_per", path: "tiers.anonymous.limits.requests.per", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
	{setting: "spend", path: "tiers.anonymous.limits.spend.usd", least: "0.00144", most: "1000000", below: "0.001439", beyond: "1000000.000001"},
	{setting: "spend_per", path: "tiers.anonymous.limits.spend.per", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
	{setting: "network_in_flight", path: "tiers.anonymous.network.max_in_flight", least: "1", most: "1000", below: "0", beyond: "1001"},
	{setting: "network_tokens", path: "tiers.anonymous.network.tokens.capacity", least: "2400", most: "1000000000000", below: "2399", beyond: "1000000000001"},
	{setting: "network_tokens_per", path: "tiers.anonymous.network.tokens.per", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
	{setting: "network_requests", path: "tiers.anonymous.network.requests.capacity", least: "1", most: "1000000000000", below: "0", beyond: "1000000000001"},
	{setting: "network_requests_per", path: "tiers.anonymous.network.requests.per", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
	{setting: "passes", path: "tiers.anonymous.passes.capacity", least: "1", most: "1000000000000", below: "0", beyond: "1000000000001"},
	{setting: "passes_per", path: "tiers.anonymous.passes.per", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
	{setting: "ttl", path: "tiers.anonymous.passes.ttl", least: "1s", most: "1d", below: "999ms", beyond: "1d1s"},
	{setting: "calls", path: "tiers.anonymous.passes.calls", least: "1", most: "17001", below: "0", beyond: "17002"},
	// The calls of a pass with the shortest and the longest life.
	{setting: "calls", path: "tiers.anonymous.passes.calls", least: "1", most: "365", below: "0", beyond: "366", atLeast: map[string]string{"ttl": "1d"}, atMost: map[string]string{"ttl": "1d"}},
	{setting: "calls", path: "tiers.anonymous.passes.calls", least: "1", most: "518400", below: "0", beyond: "518401", atLeast: map[string]string{"ttl": "1s"}, atMost: map[string]string{"ttl": "1s"}},
	{setting: "pool_per", path: "pools.anonymous.per", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
	{setting: "threshold", path: "alarm.threshold_usd", least: "0.000001", most: "1000000", below: "0", beyond: "1000000.000001"},
	{setting: "factor", path: "alarm.factor", least: "1.000001", most: "1000", below: "1", beyond: "1000.000001"},
	{setting: "floor", path: "alarm.floor_usd", least: "0.000001", most: "1000000", below: "0", beyond: "1000000.000001"},
	{setting: "repeat_every", path: "alarm.repeat_every", least: "1s", most: "366d", below: "999ms", beyond: "366d1s"},
}

// What `tokenfuse check` allows, the functions can do: they start, an anonymous caller
// and one with a pass are served, support sees the pass, and the alarm runs. Just beyond
// is a mistake that names the setting and its line.
func TestEndsOfEveryRange(t *testing.T) {
	t.Parallel()
	for _, r := range ranges {
		name := r.setting
		if r.atMost != nil {
			name += fmt.Sprint(" ", len(r.atMost), r.atMost["ttl"])
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, end := range []struct {
				inside, outside string
				more            map[string]string
				low             bool
			}{{r.least, r.below, r.atLeast, true}, {r.most, r.beyond, r.atMost, false}} {
				r.serves(t, with(end.more, map[string]string{r.setting: end.inside}), end.inside, end.low)
				wantMistake(t, with(end.more, map[string]string{r.setting: end.outside}), r.path)
			}
		})
	}
}

// wantMistake wants a mistake at a setting, with its line.
func wantMistake(t *testing.T, text, path string) {
	t.Helper()
	_, err := policy.Parse([]byte(text))
	problems, _ := err.(policy.Problems)
	for _, p := range problems {
		if p.Path != path {
			continue
		}
		line := strings.Split(text, "\n")[p.Line-1]
		key := path[strings.LastIndexByte(path, '.')+1:]
		check.That(t, strings.Contains(line, key+":") && p.Message != "", "%s: the line is %q, %s", path, line, p)
		return
	}
	t.Errorf("%s: the mistakes are %v", path, err)
}

// deployment is the three functions of a policy.
type deployment struct {
	t          *testing.T
	policy     *policy.Policy
	db         *dynamodb.Client
	table      string
	generate   *chatapi.Handler
	clearlimit func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)
	spendalarm *alarm.Handler
}

const secret = "a-secret-of-some-length"

func deploy(t *testing.T, text string) *deployment {
	t.Helper()
	on := stagetest.New(t, stage.Options{})
	s := &deployment{t: t, db: on.DynamoDB(), table: on.Limits}
	text = strings.NewReplacer(usual["upstream"], on.ModelURL(), usual["issuer"], on.URL).Replace(text)
	var err error
	if s.policy, err = policy.Parse([]byte(text)); err != nil {
		t.Fatal(err)
	}
	exposure.Of(s.policy)
	// Patience with a busy machine.
	buckets := bucket.Options{Table: s.table, AttemptTimeout: 20 * time.Second, ReserveTimeout: time.Minute, SettleTimeout: time.Minute}
	events, err := ledger.New(s.db, ledger.Options{Table: on.Spend, AttemptTimeout: 20 * time.Second})
	check.OK(t, err)
	log := slog.New(slog.DiscardHandler)
	read := func(context.Context, policy.Secret) (string, error) { return secret, nil }
	if s.generate, err = chatapi.Build(t.Context(), chatapi.Parts{Policy: s.policy, DynamoDB: s.db, Bucket: buckets, Ledger: events, Secret: read, Log: log}); err != nil {
		t.Fatalf("generate does not start: %v", err)
	}
	support, err := admin.Build(t.Context(), admin.Parts{Policy: s.policy, DynamoDB: s.db, Bucket: buckets, Spend: on.Spend, Secret: read, Log: log})
	check.Must(t, err == nil, "clearlimit does not start: %v", err)
	s.clearlimit = admin.Lambda(support)
	s.spendalarm, err = alarm.New(alarm.Config{
		Policy: s.policy, Ledger: events, State: s.db, Table: s.table, Log: log,
		SNS: sns.NewFromConfig(on.AWS()), TopicARN: stage.TopicARN, CloudWatch: cloudwatch.NewFromConfig(on.AWS()),
	})
	check.Must(t, err == nil, "spendalarm does not start: %v", err)
	return s
}

const address = "203.0.113.7"

// network is the key of the address's network.
func (s *deployment) network() string {
	s.t.Helper()
	keys, err := s.generate.Networks.Networks(netip.MustParseAddr(address), time.Now(), 0)
	check.OK(s.t, err)
	return keys[0]
}

// chat calls as somebody without a token, with a pass or "".
func (s *deployment) chat(pass string) (status int, body string) {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"ask","messages":[{"role":"user","content":"Hi"}]}`))
	r.RemoteAddr = address + ":4711"
	r.Header.Set("Content-Type", "application/json")
	if pass != "" {
		r.Header.Set("X-Challenge-Pass", pass)
	}
	w := httptest.NewRecorder()
	s.generate.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// serves wants the functions to work with a policy.
func (r row) serves(t *testing.T, text, value string, low bool) {
	t.Helper()
	s := deploy(t, text)
	status, body := s.chat("")
	switch {
	case r.challenged && low:
		check.That(t, status == http.StatusForbidden && strings.Contains(body, "challenge_required"),
			"%s %s: a caller without a pass: %d %s", r.setting, value, status, body)
	case status != http.StatusOK && !(r.slow && status == http.StatusGatewayTimeout):
		t.Errorf("%s %s: a caller without a pass: %d %s", r.setting, value, status, body)
	}
	pass, token := s.generate.Passes.Issue(s.network())
	if status, body := s.chat(token); status != http.StatusOK && !(r.slow && status == http.StatusGatewayTimeout) {
		t.Errorf("%s %s: a caller with a pass: %d %s", r.setting, value, status, body)
	}
	e := events.APIGatewayProxyRequest{HTTPMethod: http.MethodGet, Path: "/admin/limits", QueryStringParameters: map[string]string{"identity": "pass#" + pass.ID}}
	e.RequestContext.RequestID, e.RequestContext.Identity.UserArn = "r", "arn:aws:iam::123456789012:user/support"
	a, err := s.clearlimit(t.Context(), e)
	var view struct{ Limits []limits.View }
	check.That(t, err == nil && a.StatusCode == http.StatusOK && json.Unmarshal([]byte(a.Body), &view) == nil && len(view.Limits) != 0,
		"%s %s: support sees %d %s, %v", r.setting, value, a.StatusCode, a.Body, err)
	for _, l := range view.Limits {
		check.That(t, l.Remaining >= 0 && l.Remaining <= l.Capacity && l.Reset >= 0 && l.RetryAfter >= 0, "%s %s: support sees %+v", r.setting, value, l)
	}
	if result, err := s.spendalarm.Run(t.Context()); err != nil || result.State == "unknown" {
		t.Errorf("%s %s: spendalarm: %+v, %v", r.setting, value, result, err)
	}
}

// The dearest call of all: the largest context at the highest prices, where no pool and
// no limit in dollars bounds it.
func TestDearestCall(t *testing.T) {
	t.Parallel()
	dearest := map[string]string{"context": "100000000", "tier_input": "99900000", "tier_output": "100000", "feature_output": "100000",
		"tokens": "100000000", "network_tokens": "100000000"}
	for _, price := range []string{"input", "cached_input", "cache_write", "output", "long_input", "long_cached_input", "long_cache_write", "long_output"} {
		dearest[price] = "10000"
	}
	text := with(dearest)
	for _, bound := range []string{"    pool: anonymous\n", "      spend:\n        usd: 2.00\n        per: 24h\n", "pools:\n  anonymous:\n    usd: 2.00\n    per: 1h\n"} {
		check.Must(t, strings.Contains(text, bound), "no %q", bound)
		text = strings.Replace(text, bound, "", 1)
	}
	row{setting: "every price"}.serves(t, text, "at most", false)
}

// A pass is good for its calls and no more as long as it lives, whatever its life and
// their number, by the clocks of all processes; and its item is not kept longer than
// any other.
func TestCallsOfAPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ttl   time.Duration
		calls int
	}{{time.Second, 1}, {time.Second, 518_400}, {30 * time.Minute, 20}, {30 * time.Minute, 17_001}, {24 * time.Hour, 1}, {24 * time.Hour, 365}} {
		t.Run(fmt.Sprint(c.ttl, " ", c.calls), func(t *testing.T) {
			t.Parallel()
			p, err := policy.Parse([]byte(with(map[string]string{"ttl": c.ttl.String(), "calls": fmt.Sprint(c.calls)})))
			check.OK(t, err)
			db, table := enginetest.Table(t)
			now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
			issued := now
			buckets, err := bucket.New(db, bucket.Options{Table: table, LongestPeriod: p.LongestPeriod(), Now: func() time.Time { return now },
				AttemptTimeout: 20 * time.Second, ReserveTimeout: time.Minute})
			check.OK(t, err)
			l := limits.OfTier(p.Tiers[policy.Anonymous], limits.Pass)[0]
			check.Must(t, l.Role == limits.PassCalls && l.Validate() == nil, "%+v", l)
			admitted := func(calls int64) bool {
				t.Helper()
				d, err := buckets.Reserve(t.Context(), bucket.Request{Key: "pass#1", Charges: []bucket.Charge{{Limit: l.Limit, Cost: calls}},
					MaxInFlight: 1000, Deadline: now.Add(time.Hour)})
				check.OK(t, err)
				if d.Reservation == nil {
					return false
				}
				if err := d.Reservation.Settle(t.Context(), []int64{calls}); err != nil { // answered
					t.Fatal(err)
				}
				return true
			}
			check.That(t, (c.calls <= 1 || admitted(int64(c.calls-1))) && admitted(1), "not all calls are admitted")
			// To half a minute beyond its life, by a clock that is behind.
			for i := range 11 {
				now = issued.Add((c.ttl + 30*time.Second) * time.Duration(i) / 10)
				if admitted(1) {
					t.Errorf("one more call after %s", now.Sub(issued))
				}
			}
			if p.LongestPeriod() > 25*time.Hour {
				t.Errorf("items are kept for %s", p.LongestPeriod())
			}
		})
	}
}

// A network's item has room for all that the policy lets it hold: a hold for each call
// that may be open, and each client's limits and quotas, with the longest names.
func TestLargestItem(t *testing.T) {
	t.Parallel()
	quotas := func(n int) string {
		var features strings.Builder
		features.WriteString("features:\n")
		for i := range n {
			name := fmt.Sprintf("%s%02d", strings.Repeat("f", 30), i)
			fmt.Fprintf(&features, "  %s: {model: m, max_output_tokens: 800, tiers: [anonymous], quota: {capacity: 10, per: 366d}}\n", name)
		}
		return strings.Replace(with(map[string]string{"network_in_flight": "1000", "in_flight": "1000"}), "features:\n", features.String(), 1)
	}
	wantMistake(t, quotas(40), "tiers.anonymous") // and ask
	text := strings.Replace(quotas(40), "  ask:\n    model: m\n", "  ask:\n    tiers: [user]\n    model: m\n", 1)
	s := deploy(t, text)

	tier := s.policy.Tiers[policy.Anonymous]
	n := func(v int64) types.AttributeValue { return &types.AttributeValueMemberN{Value: fmt.Sprint(v)} }
	now := time.Now()
	it := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "net#" + s.network()}, "o": n(999), "n": n(31), "expires": n(now.Unix() + 1<<25)}
	size := 0
	for i := range 32 {
		client := fmt.Sprintf("AAAAAA%c%c", 'A'+i/16, 'A'+i%16)
		if i == 31 {
			client = bucket.Overflow
		}
		it["o_"+client] = n(1)
		for _, l := range limits.Of(s.policy, tier, limits.Network) {
			if !l.OfClient() {
				continue
			}
			suffix := fmt.Sprintf("%s_%s_%d", client, l.Name, int64(l.Period.Seconds()))
			it["t_"+suffix], it["g_"+suffix] = n(now.UnixMicro()+1), n(now.UnixMicro())
			it[fmt.Sprintf("cleared_%s_%s", client, l.Name)] = n(now.UnixMicro())
		}
	}
	// As long as a live hold of a client with a quota can be; in a form that nobody sweeps.
	hold := make([]byte, 1+8+5+1+8+1+1+32+4+8+bucket.MaxNote)
	hold[0] = 0xff
	for i := range 999 {
		it[fmt.Sprintf("h_%011d", i)] = &types.AttributeValueMemberB{Value: hold}
	}
	for name, v := range it {
		size += len(name)
		switch v := v.(type) {
		case *types.AttributeValueMemberN:
			size += len(v.Value)/2 + 2
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		}
	}
	check.That(t, size <= 400_000, "the largest item has %d bytes", size)
	if _, err := s.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &s.table, Item: it}); err != nil {
		t.Fatalf("%d bytes: %v", size, err)
	}
	feature := strings.Repeat("f", 30) + "00"
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"`+feature+`","messages":[{"role":"user","content":"Hi"}]}`))
	r.RemoteAddr = address + ":4711"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.generate.ServeHTTP(w, r)
	check.Equal(t, w.Code, http.StatusOK, "call number 1000 of a network with everything: … %s", w.Body)
}
