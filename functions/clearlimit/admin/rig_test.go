package admin

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
	"github.com/tokenfuse/tokenfuse/testkit/testclock"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

const testPolicy = `
providers:
  main: {kind: openai, base_url: "http://127.0.0.1:1/v1", timeout: 20s}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 1000000,
          price_per_mtok: {input: "0.40", cached_input: "0.10", output: "1.60"}}
features:
  docqa:    {model: small, max_output_tokens: 800}
  visitor:  {model: small, max_output_tokens: 400, tiers: [anonymous], quota: {capacity: 5, per: 1h}}
  cv:       {model: small, max_output_tokens: 2000, tiers: [user, pro], quota: {capacity: 10, per: 24h}}
  linkedin: {model: small, max_output_tokens: 1200, tiers: [user, pro], quota: {capacity: 20, per: 24h}}
tiers:
  anonymous: {max_input_chars: 2000, max_input_tokens: 2000, max_messages: 16, max_output_tokens: 400, max_in_flight: 4, challenge_at: 0.5,
              limits: {tokens: {capacity: 5000, per: 1h}, requests: {capacity: 20, per: 1m}},
              network: {tokens: {capacity: 50000, per: 1h}, requests: {capacity: 200, per: 1m}, max_in_flight: 32},
              passes: {capacity: 30, per: 1h, ttl: 30m, calls: 20}}
  user:      {max_input_tokens: 6000, max_messages: 64, max_output_tokens: 4000, max_in_flight: 8,
              limits: {tokens: {capacity: 50000, per: 1h}, requests: {capacity: 60, per: 1m}, spend: {usd: "2.00", per: 24h}}}
  pro:       {max_input_tokens: 60000, max_messages: 256, max_output_tokens: 8000, max_in_flight: 16,
              limits: {tokens: {capacity: 400000, per: 1h}, requests: {capacity: 120, per: 1m}, spend: {usd: "10.00", per: 48h}}}
auth: {issuer: "https://issuer.example.com", audience: "test", jwks_url: "https://issuer.example.com/jwks.json", plan_claim: plan}
challenge: {kind: altcha, secret: {env: TEST_SECRET}}
fingerprint: {secret: {env: TEST_SECRET}}
admin: {allow_arns: ["arn:aws:iam::123456789012:user/support", "arn:aws:iam::123456789012:role/team/oncall"]}
`

const (
	support    = "arn:aws:iam::123456789012:user/support"
	testSecret = "a-secret-of-some-length"
	network    = "aaaaaaaabbbbbbbb"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// rig is the function as Lambda calls it, on the real engine, beside processes
// that call as generate does.
type rig struct {
	*testclock.Clock
	t       testing.TB
	policy  *policy.Policy
	handler *Handler
	call    func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)
	net     *faults.Transport // between the handler and the store
	db      *dynamodb.Client  // past it
	table   string
	spends  string // the table Spend
	denials func() (map[string]int64, error)
	log     *buffer.Synced
	callers *bucket.Buckets // of generate
	emails  *emails.Index   // of generate
	secret  func() (string, error)
}

func newRig(t testing.TB, edit ...func(yaml string) string) *rig {
	t.Helper()
	g := &rig{t: t, log: &buffer.Synced{}, net: &faults.Transport{}, Clock: testclock.At(noon), secret: func() (string, error) { return testSecret, nil },
		denials: func() (map[string]int64, error) { return map[string]int64{"tokens": 7}, nil }}
	yaml := testPolicy
	for _, f := range edit {
		yaml = f(yaml)
	}
	var err error
	if g.policy, err = policy.Parse([]byte(yaml)); err != nil {
		t.Fatal(err)
	}
	g.db, g.table = enginetest.Table(t)
	faulty, _ := enginetest.Table(t, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: g.net} })
	_, g.spends = enginetest.SpendTable(t)
	opts := bucket.Options{Table: g.table, AttemptTimeout: 20 * time.Second, ReserveTimeout: time.Minute, SettleTimeout: time.Minute}
	g.handler, err = Build(t.Context(), Parts{
		Policy: g.policy, DynamoDB: faulty, Bucket: opts, Spend: g.spends,
		Denials: func(context.Context, time.Time, time.Time) (map[string]int64, error) { return g.denials() },
		Secret:  func(context.Context, policy.Secret) (string, error) { return g.secret() },
		Log:     environ.NewLog(g.log), Now: g.Now,
	})
	check.OK(t, err)
	g.call = Lambda(g.handler)
	opts.Now, opts.LongestPeriod = g.Now, g.policy.LongestPeriod()+time.Minute
	if g.callers, err = bucket.New(g.db, opts); err != nil {
		t.Fatal(err)
	}
	if g.emails, err = emails.New(g.db, g.table, []byte(testSecret), g.Now); err != nil {
		t.Fatal(err)
	}
	return g
}

// event is a request as API Gateway delivers it, signed by support.
func (g *rig) event(method, target, body string) events.APIGatewayProxyRequest {
	g.t.Helper()
	raw, err := os.ReadFile("../../../internal/lambdahttp/testdata/iam.json")
	check.OK(g.t, err)
	var e events.APIGatewayProxyRequest
	check.OK(g.t, json.Unmarshal(raw, &e))
	path, query, _ := strings.Cut(target, "?")
	e.HTTPMethod, e.Path, e.Body = method, path, body
	e.RequestContext.HTTPMethod, e.RequestContext.Path = method, "/prod"+path
	e.QueryStringParameters, e.MultiValueQueryStringParameters = nil, nil
	if query != "" {
		e.MultiValueQueryStringParameters = map[string][]string{}
		for pair := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(pair, "=")
			e.MultiValueQueryStringParameters[name] = append(e.MultiValueQueryStringParameters[name], value)
		}
	}
	return e
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (g *rig) send(e events.APIGatewayProxyRequest) answer {
	g.t.Helper()
	res, err := g.call(g.t.Context(), e)
	check.OK(g.t, err)
	return answer{res.StatusCode, res.MultiValueHeaders, res.Body}
}

func (g *rig) do(method, target, body string) answer {
	g.t.Helper()
	return g.send(g.event(method, target, body))
}

// read decodes the answer to a request that must succeed.
func (g *rig) read(a answer, into any) {
	g.t.Helper()
	check.Must(g.t, a.status == http.StatusOK, "%d %s", a.status, a.body)
	check.OK(g.t, json.Unmarshal([]byte(a.body), into))
}

// tellsWhatToDo is in every message.
var tellsWhatToDo = regexp.MustCompile(`\b(must|[Nn]ame|[Ss]ay|[Gg]ive|[Ss]end|Try|Sign|Use|Look|check|Supported are)\b`)

// refused checks that the last request was refused with a code, in the envelope, with
// a message that helps, and that the log has it.
func (g *rig) refused(a answer, status int, code, param string) string {
	g.t.Helper()
	var envelope struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	err := json.Unmarshal([]byte(a.body), &envelope)
	check.Must(g.t, err == nil, "%v: %s", err, a.body)
	e := envelope.Error
	got := ""
	if e.Param != nil {
		got = *e.Param
	}
	check.That(g.t, a.status == status && e.Code == code && got == param && e.Message != "" && e.Type != "",
		"%d %s; want %d, code %s, param %q", a.status, a.body, status, code, param)
	check.That(g.t, a.header.Get("X-Should-Retry") != "" && a.header.Get("X-Request-Id") != "" && a.header.Get("Cache-Control") == "no-store",
		"headers %v", a.header)
	check.That(g.t, tellsWhatToDo.MatchString(e.Message), "what to do? %s", e.Message)
	lines := g.logged("admin request")
	check.That(g.t, len(lines) != 0 && lines[len(lines)-1]["outcome"] == code && lines[len(lines)-1]["level"] == "WARN", "%s is not in the log", code)
	return e.Message
}

// inBucket is a figure as people see it in the unit of its limit's bucket: money is in
// pico-dollars there.
func inBucket(limit string, n int64) int64 {
	if limit == "spend" {
		return n * 1_000_000
	}
	return n
}

// request is what a caller of a tier asks for: cost of each limit, by name.
func (g *rig) request(t *target, tier, client string, costs map[string]int64) bucket.Request {
	g.t.Helper()
	req := bucket.Request{Key: t.key(), MaxInFlight: 50, Deadline: g.Now().Add(time.Minute)}
	if client != "" {
		req.Client = bucket.Client{Key: client, MaxInFlight: 50}
	}
	costs = maps.Clone(costs)
	for _, l := range append(limits.Of(g.policy, g.policy.Tiers[tier], t.kind), limits.OfPasses(g.policy.Tiers["anonymous"].Passes)) {
		if cost := costs[l.Name]; cost > 0 {
			req.Charges = append(req.Charges, bucket.Charge{Limit: l.Limit, Cost: inBucket(l.Name, cost), OfClient: l.OfClient()})
			delete(costs, l.Name)
		}
	}
	check.Must(g.t, len(costs) == 0, "no such limits: %v", costs)
	return req
}

// reserve asks as a caller of a tier does.
func (g *rig) reserve(t *target, tier, client string, costs map[string]int64) bucket.Decision {
	g.t.Helper()
	d, err := g.callers.Reserve(g.t.Context(), g.request(t, tier, client, costs))
	check.OK(g.t, err)
	return d
}

// spend reserves and uses all of it.
func (g *rig) spend(t *target, tier, client string, costs map[string]int64) {
	g.t.Helper()
	d := g.reserve(t, tier, client, costs)
	check.Must(g.t, d.Reservation != nil, "denied: %+v", d.Denials)
	used := make([]int64, len(d.Limits))
	for i, s := range d.Limits {
		used[i] = inBucket(s.Limit.Name, costs[s.Limit.Name])
	}
	check.OK(g.t, d.Reservation.Settle(g.t.Context(), used))
}

// items are the table's items whose key has a prefix.
func (g *rig) items(prefix string) []map[string]types.AttributeValue {
	g.t.Helper()
	out, err := g.db.Scan(g.t.Context(), &dynamodb.ScanInput{TableName: &g.table})
	check.OK(g.t, err)
	var items []map[string]types.AttributeValue
	for _, item := range out.Items {
		if strings.HasPrefix(item["pk"].(*types.AttributeValueMemberS).Value, prefix) {
			items = append(items, item)
		}
	}
	return items
}

// logged are the log's lines with a message.
func (g *rig) logged(message string) []map[string]any {
	g.t.Helper()
	var lines []map[string]any
	for _, l := range buffer.Lines(g.t, g.log.String()) {
		if l["msg"] == message {
			lines = append(lines, l)
		}
	}
	return lines
}

func user(id string) *target { return &target{kind: limits.User, id: id} }
func net(id string) *target  { return &target{kind: limits.Network, id: id} }
func pass(id string) *target { return &target{kind: limits.Pass, id: id} }

// shortTempered are the handler's buckets, but soon tired of a store that fails.
func (g *rig) shortTempered() *bucket.Buckets {
	g.t.Helper()
	db, _ := enginetest.Table(g.t, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: g.net} })
	b, err := bucket.New(db, bucket.Options{Table: g.table, LongestPeriod: 48 * time.Hour, Now: g.Now,
		AttemptTimeout: time.Second, ReserveTimeout: 150 * time.Millisecond, SettleTimeout: time.Second})
	check.OK(g.t, err)
	return b
}
