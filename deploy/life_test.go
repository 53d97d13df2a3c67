//go:build sam

package deploy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// What functions are allowed that no call of theirs shows here: what Lambda does in
// their name, SNS's key, and the reading of secrets.
var elsewhere = map[string][]string{
	"Generate":   {"logs:CreateLogStream", "logs:PutLogEvents", "ssm:GetParameters", "secretsmanager:GetSecretValue"},
	"ClearLimit": {"logs:CreateLogStream", "logs:PutLogEvents", "cloudwatch:GetMetricData", "ssm:GetParameters", "secretsmanager:GetSecretValue"},
	"SpendAlarm": {"logs:CreateLogStream", "logs:PutLogEvents", "kms:Decrypt", "kms:GenerateDataKey", "sqs:SendMessage"},
}

// TestLife lets the functions live with the permissions of their roles. Everything
// that they do must be allowed, every grant must be needed for something that they do,
// and what they write must be what the template's tables, alarms and dashboard read.
func TestLife(t *testing.T) {
	t.Parallel()
	s := newStack(template(t))
	w := newWorld(t, s)
	w.live()
	for function, used := range w.used {
		for _, g := range s.grants(function) {
			check.That(t, used[g] || slices.Contains(elsewhere[function], g.action),
				"%s may %s on %s, key %q, and does not need it", function, g.action, g.resource, g.key)
		}
	}
	w.checkMetrics()
	w.checkQueries()
	w.checkTables()
}

// live lets everything happen that touches a store.
func (w *world) live() {
	w.t.Helper()
	ann, anybody := w.user("ann", "ann@example.com"), caller{}
	for range 2 {
		w.chat(w.generate, ann, "cv", "Hello", http.StatusOK)
	}
	w.isEnvelope(w.chat(w.generate, ann, "cv", "Hello", http.StatusTooManyRequests))
	w.isEnvelope(w.chat(w.generate, ann, "none", "Hello", http.StatusNotFound))
	w.chat(w.generate, ann, "docqa", "[[fail:500]]", http.StatusBadGateway)
	w.chat(w.generate, anybody, "docqa", "Hello", http.StatusOK)
	pass := w.solve()
	w.chat(w.generate, pass, "docqa", "Hello", http.StatusOK)
	w.do(w.generate, ann, "GET", "/v1/limits", "", http.StatusOK)
	network, holder := w.identity(anybody), w.identity(pass)

	dan := w.user("dan", "")
	w.die(dan)
	if r := w.run(); r.Paged != "opened" {
		w.t.Errorf("spendalarm: %+v", r)
	}
	if got := w.admin("GET", "/admin/fuse", nil, ""); !bytes.Contains(got, []byte(`"challenge"`)) {
		w.t.Errorf("the alarm has not set the fuse: %s", got)
	}
	for _, who := range []map[string]string{{"user": "ann"}, {"email": "ann@example.com"}, {"identity": network}, {"identity": holder}} {
		w.admin("GET", "/admin/limits", who, "")
		who["type"] = "all"
		body, err := json.Marshal(who)
		check.OK(w.t, err)
		w.admin("POST", "/admin/limits/clear", nil, string(body))
	}

	w.admin("POST", "/admin/block", nil, `{"email":"ann@example.com","for":"10m"}`)
	w.advance(4 * time.Second)
	w.isEnvelope(w.chat(w.generate, ann, "docqa", "Hello", http.StatusForbidden))
	w.admin("POST", "/admin/unblock", nil, `{"user":"ann"}`)
	if got := w.admin("GET", "/admin/audit", map[string]string{"user": "ann"}, ""); bytes.Count(got, []byte(`"whom":"user#ann"`)) != 4 {
		w.t.Errorf("the changes of ann: %s", got)
	}

	w.advance(20 * time.Minute)
	w.chat(w.generate, anybody, "docqa", "Hello", http.StatusForbidden)
	w.chat(w.generate, dan, "docqa", "Hello", http.StatusOK) // sweeps the dead call, whose minute is closed
	w.run()                                                  // renews the fuse, rolls minutes up
	if got := w.admin("GET", "/admin/status", nil, ""); !bytes.Contains(got, []byte(`"problems":[]`)) || !bytes.Contains(got, []byte(`"threshold_usd":"`)) {
		w.t.Errorf("status: %s", got)
	}
	w.advance(3 * time.Hour)
	if r := w.run(); r.Paged != "cleared" { // releases the fuse, rolls hours up
		w.t.Errorf("spendalarm: %+v", r)
	}
	w.overspend("all")
	w.isEnvelope(w.chat(w.generate, ann, "docqa", "Hello", http.StatusServiceUnavailable))
	w.admin("GET", "/admin/limits", map[string]string{"identity": "pool#all"}, "")
	if got := w.admin("POST", "/admin/limits/clear", nil, `{"identity":"pool#all","type":"all"}`); bytes.Contains(got, []byte(`"forgiven":0`)) {
		w.t.Errorf("the pool's debt was not forgiven: %s", got)
	}
	w.admin("PUT", "/admin/fuse", nil, `{"state":"anonymous_off"}`)
	w.advance(time.Minute)
	w.chat(w.generate, anybody, "docqa", "Hello", http.StatusServiceUnavailable)
	w.chat(w.impatient(func() bool { return true }), ann, "docqa", "Hello", http.StatusServiceUnavailable) // the store is away
}

// overspend makes a call cost a hundred times what may be spent at once of a pool.
func (w *world) overspend(name string) {
	w.t.Helper()
	opts, pool := w.limits, w.policy.Pools[name]
	opts.Now, opts.LongestPeriod = w.now, w.policy.LongestPeriod()
	b, err := bucket.New(w.db(http.DefaultTransport), opts)
	check.OK(w.t, err)
	p, err := b.NewPool("pool#"+name, int64(pool.Ceiling), pool.Period, bucket.PoolOptions{})
	check.OK(w.t, err)
	r, _, err := p.Reserve(w.t.Context(), 1)
	if err != nil || r == nil {
		w.t.Fatal(r, err)
	}
	check.OK(w.t, r.Settle(w.t.Context(), 100*int64(pool.Burst())))
}

// die makes a call of a process that dies before it can settle.
func (w *world) die(who caller) {
	w.t.Helper()
	var dead atomic.Bool
	w.arrived.Store(func() { dead.Store(true) })
	defer w.arrived.Store(func() {})
	w.chat(w.impatient(dead.Load), who, "docqa", "Hello", http.StatusOK)
}

// impatient makes a process of generate that loses the store when lost says so, and
// does not wait for it.
func (w *world) impatient(lost func() bool) http.Handler {
	w.t.Helper()
	limits := w.limits
	limits.ReserveTimeout, limits.SettleTimeout = 100*time.Millisecond, 50*time.Millisecond
	return w.newGenerate(limits, w.enforce("Generate", roundTrip(func(r *http.Request) (*http.Response, error) {
		if lost() {
			return nil, faults.ErrLost
		}
		return http.DefaultTransport.RoundTrip(r)
	})), func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
}

// isEnvelope anchors the envelope of the gateway's responses to that of the code.
func (w *world) isEnvelope(body []byte) {
	w.t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var e envelope
	err := d.Decode(&e)
	check.That(w.t, err == nil && e.Error.Message != "" && e.Error.Type != "" && e.Error.Code != "", "%s: %v", body, err)
}
