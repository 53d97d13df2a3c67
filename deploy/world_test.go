//go:build sam

package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/functions/clearlimit/admin"
	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/functions/spendalarm/alarm"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/stagetest"
	"github.com/tokenfuse/tokenfuse/testkit/widget"
)

const worldPolicy = `
providers:
  main: {kind: openai, base_url: "STAGE/v1", timeout: 20s}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 1000000, price_per_mtok: {input: "0.40", output: "1.60"}}
features:
  docqa: {model: small, max_output_tokens: 400}
  cv:    {model: small, max_output_tokens: 400, tiers: [user], quota: {capacity: 2, per: 24h}}
tiers:
  anonymous: {max_input_chars: 2000, max_input_tokens: 2000, max_messages: 16, max_output_tokens: 400, max_in_flight: 4, challenge_at: 0.5, pool: anonymous,
              limits: {tokens: {capacity: 5000, per: 1h}, requests: {capacity: 20, per: 1m}},
              network: {tokens: {capacity: 50000, per: 1h}, requests: {capacity: 200, per: 1m}, max_in_flight: 32},
              passes: {capacity: 30, per: 1h, ttl: 30m, calls: 20}}
  user:      {max_input_tokens: 6000, max_messages: 64, max_output_tokens: 400, max_in_flight: 8,
              limits: {tokens: {capacity: 50000, per: 1h}, requests: {capacity: 60, per: 1m}}}
pools:       {anonymous: {usd: "2.00", per: 1h}, all: {usd: "20.00", per: 1h}}
auth:        {issuer: "STAGE", audience: test, jwks_url: "STAGE/dev/jwks.json", plan_claim: plan}
challenge:   {kind: altcha, secret: {env: SECRET}}
fingerprint: {secret: {env: SECRET}}
alarm:       {threshold_usd: "0.00002", factor: 4, floor_usd: "0.00002", repeat_every: 1h, fuse: challenge}
`

// world is the three functions on the engine, each with the permissions of its role
// and no more.
type world struct {
	t      *testing.T
	stack  *stack
	stage  *stage.Stage
	policy *policy.Policy
	tables map[string]string // their names to the references to them

	mu   sync.Mutex
	used map[string]map[grant]bool // by function

	later   atomic.Int64              // how far the functions' clock is ahead, in ns
	arrived atomic.Value              // func(), called when a call reaches the model
	metrics buffer.Synced             // what generate writes for CloudWatch
	logs    map[string]*buffer.Synced // of generate and spendalarm
	limits  bucket.Options            // of generate and clearlimit
	ledgers *ledger.Options           // of generate and spendalarm

	generate   *chatapi.Handler
	clearlimit func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)
	spendalarm *alarm.Handler
}

func newWorld(t *testing.T, s *stack) *world {
	t.Helper()
	w := &world{t: t, stack: s,
		used: map[string]map[grant]bool{"Generate": {}, "ClearLimit": {}, "SpendAlarm": {}}, logs: map[string]*buffer.Synced{"Generate": {}, "SpendAlarm": {}}}
	w.arrived.Store(func() {})
	w.stage = stagetest.New(t, stage.Options{Model: func(model http.Handler) http.Handler {
		return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			w.arrived.Load().(func())()
			model.ServeHTTP(out, r)
		})
	}})
	var err error
	if w.policy, err = policy.Parse([]byte(strings.ReplaceAll(worldPolicy, "STAGE", w.stage.URL))); err != nil {
		t.Fatal(err)
	}
	limits, spend := w.stage.Limits, w.stage.Spend
	w.tables = map[string]string{limits: "<Limits.Arn>", spend: "<Spend.Arn>"}
	// Patience with a busy machine.
	w.limits = bucket.Options{Table: limits, AttemptTimeout: 20 * time.Second, ReserveTimeout: time.Minute, SettleTimeout: time.Minute}
	w.ledgers = &ledger.Options{Table: spend, Now: w.now, AttemptTimeout: 20 * time.Second}

	w.generate = w.newGenerate(w.limits, w.enforce("Generate", http.DefaultTransport))
	h, err := admin.Build(t.Context(), admin.Parts{Policy: w.policy, DynamoDB: w.db(w.enforce("ClearLimit", http.DefaultTransport)),
		Bucket: w.limits, Spend: spend, Secret: secret, Log: slog.New(slog.DiscardHandler), Now: w.now})
	check.OK(t, err)
	w.clearlimit = admin.Lambda(h)

	network := w.enforce("SpendAlarm", http.DefaultTransport)
	aws := w.stage.AWS()
	aws.HTTPClient, aws.DisableRequestCompression = &http.Client{Transport: network}, true
	w.spendalarm, err = alarm.New(alarm.Config{
		Policy: w.policy, Ledger: w.ledger(network), State: w.db(network), Table: limits,
		SNS: sns.NewFromConfig(aws), TopicARN: stage.TopicARN, CloudWatch: cloudwatch.NewFromConfig(aws),
		Endpoint: "https://example.com/prod", Now: w.now, Log: w.log("SpendAlarm"), Namespace: w.namespace("SpendAlarm"),
	})
	check.OK(t, err)
	return w
}

// newGenerate makes a process of generate.
func (w *world) newGenerate(limits bucket.Options, network http.RoundTripper, opts ...func(*dynamodb.Options)) *chatapi.Handler {
	w.t.Helper()
	h, err := chatapi.Build(w.t.Context(), chatapi.Parts{Policy: w.policy, DynamoDB: w.db(network, opts...), Bucket: limits, Ledger: w.ledger(network, opts...),
		Secret: secret, Log: w.log("Generate"), Metrics: emf.New(&w.metrics, w.namespace("Generate"), w.now), Now: w.now,
		Version: w.stack.get("GenerateAliaslive", "FunctionVersion").(string)})
	check.OK(w.t, err)
	return h
}

func (w *world) ledger(network http.RoundTripper, opts ...func(*dynamodb.Options)) *ledger.Ledger {
	w.t.Helper()
	l, err := ledger.New(w.db(network, opts...), *w.ledgers)
	check.OK(w.t, err)
	return l
}

func (w *world) db(network http.RoundTripper, opts ...func(*dynamodb.Options)) *dynamodb.Client {
	return w.stage.DynamoDB(append(opts, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: network} })...)
}

// namespace is where a function's metrics go.
func (w *world) namespace(function string) string {
	return w.stack.get(function, "Environment", "Variables", "METRICS_NAMESPACE").(string)
}

func (w *world) log(function string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w.logs[function], nil))
}

func secret(context.Context, policy.Secret) (string, error) { return "a-secret-of-some-length", nil }

func (w *world) now() time.Time          { return time.Now().Add(time.Duration(w.later.Load())) }
func (w *world) advance(d time.Duration) { w.later.Add(int64(d)) }

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// enforce is a network that lets a function's calls through if its role allows them,
// as IAM does, and notes what they needed.
func (w *world) enforce(function string, network http.RoundTripper) http.RoundTripper {
	grants := w.stack.grants(function)
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		call := w.callOf(r, body)
		for _, g := range grants {
			if g.allows(call.action, call.resource, call.key) {
				w.mu.Lock()
				w.used[function][g] = true
				w.mu.Unlock()
				return network.RoundTrip(r)
			}
		}
		w.t.Errorf("%s may not %s on %s, key %q", function, call.action, call.resource, call.key)
		denied := `{"__type":"com.amazonaws.dynamodb.v20120810#AccessDeniedException","message":"not allowed"}`
		return &http.Response{StatusCode: http.StatusBadRequest, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(strings.NewReader(denied)), ContentLength: int64(len(denied))}, nil
	})
}

// callOf reads a request of an AWS client as IAM sees it.
func (w *world) callOf(r *http.Request, body []byte) grant {
	if target, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810."); ok {
		type keys struct{ PK struct{ S string } }
		var in struct {
			TableName                 string
			Key, Item                 keys
			KeyConditionExpression    string
			ExpressionAttributeValues map[string]struct{ S string }
			RequestItems              map[string]struct{ Keys []keys } // all of one kind
		}
		err := json.Unmarshal(body, &in)
		check.That(w.t, err == nil, "%s: %v", target, err)
		key := in.Key.PK.S + in.Item.PK.S
		for table, some := range in.RequestItems {
			in.TableName, key = table, some.Keys[0].PK.S
		}
		if in.KeyConditionExpression != "" {
			key = in.ExpressionAttributeValues[":pk"].S
		}
		return grant{"dynamodb:" + target, w.tables[in.TableName], key}
	}
	if strings.HasSuffix(r.URL.Path, "/PutMetricData") {
		check.That(w.t, bytes.Contains(body, []byte(stackName)), "metrics of another namespace")
		return grant{"cloudwatch:PutMetricData", "*", ""}
	}
	form, _ := url.ParseQuery(string(body))
	return grant{"sns:" + form.Get("Action"), strings.Replace(form.Get("TopicArn"), stage.TopicARN, "<Topic>", 1), ""}
}

// caller is who calls generate: a user with a token, or somebody with or without a pass.
type caller struct{ token, pass string }

func (w *world) user(sub, email string) caller {
	w.t.Helper()
	token, err := w.stage.Issuer.Token(issuer.Claims{Subject: sub, Email: email, EmailVerified: email != "", TTL: 240 * time.Hour})
	check.OK(w.t, err)
	return caller{token: token}
}

// do calls a process of generate and wants a status.
func (w *world) do(h http.Handler, who caller, method, path, body string, status int) []byte {
	w.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "203.0.113.7:4711"
	r.Header.Set("User-Agent", "a browser")
	r.Header.Set("Accept-Language", "en")
	r.Header.Set("Sec-Fetch-Mode", "cors")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if who.token != "" {
		r.Header.Set("Authorization", "Bearer "+who.token)
	}
	if who.pass != "" {
		r.Header.Set("X-Challenge-Pass", who.pass)
	}
	out := httptest.NewRecorder()
	h.ServeHTTP(out, r)
	check.Equal(w.t, out.Code, status, "%s %s: … %s", method, path, out.Body)
	return out.Body.Bytes()
}

func (w *world) chat(h http.Handler, who caller, feature, text string, status int) []byte {
	w.t.Helper()
	return w.do(h, who, "POST", "/v1/chat/completions", `{"model":"`+feature+`","messages":[{"role":"user","content":"`+text+`"}]}`, status)
}

// admin calls clearlimit.
func (w *world) admin(method, path string, query map[string]string, body string) []byte {
	w.t.Helper()
	e := events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, QueryStringParameters: query, Body: body, Headers: map[string]string{"Content-Type": "application/json"}}
	e.RequestContext.RequestID, e.RequestContext.Identity.UserArn = "r", "arn:aws:iam::123456789012:user/support"
	a, err := w.clearlimit(w.t.Context(), e)
	check.That(w.t, err == nil && a.StatusCode == http.StatusOK, "%s %s: %d %s %v", method, path, a.StatusCode, a.Body, err)
	return []byte(a.Body)
}

// run runs spendalarm.
func (w *world) run() alarm.Result {
	w.t.Helper()
	r, err := w.spendalarm.Run(w.t.Context())
	check.That(w.t, err == nil, "%v", err)
	return r
}

// solve gets a pass for a challenge, as a browser's widget does.
func (w *world) solve() caller {
	w.t.Helper()
	body := w.do(w.generate, caller{}, "GET", "/v1/challenge", "", http.StatusOK)
	payload := widget.Solve(w.t, body)
	got := w.do(w.generate, caller{}, "POST", "/v1/challenge", `{"payload":"`+payload+`"}`, http.StatusOK)
	var pass struct{ Pass string }
	err := json.Unmarshal(got, &pass)
	check.Must(w.t, err == nil && pass.Pass != "", "no pass: %s", got)
	return caller{pass: pass.Pass}
}

// identity is what an anonymous caller is called in logs.
func (w *world) identity(who caller) string {
	w.t.Helper()
	var view struct{ Identity struct{ ID string } }
	check.OK(w.t, json.Unmarshal(w.do(w.generate, who, "GET", "/v1/limits", "", http.StatusOK), &view))
	return view.Identity.ID
}
