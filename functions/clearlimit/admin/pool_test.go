package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// withPools adds pools to a policy: of $4.00 a dollar may be spent at once.
func withPools(yaml string) string {
	return yaml + "pools: {all: {usd: \"4.00\", per: 1h}, anonymous: {usd: \"0.04\", per: 1h}}\n"
}

const dollar = 1_000_000_000_000 // in a pool's units

// overspend uses dollars of the pool `all`, half a dollar of which was reserved.
func (g *rig) overspend(used int64) {
	g.t.Helper()
	p, err := g.callers.NewPool("pool#all", 4*dollar, time.Hour, bucket.PoolOptions{})
	check.OK(g.t, err)
	r, _, err := p.Reserve(g.t.Context(), dollar/2)
	if err != nil || r == nil {
		g.t.Fatal(r, err)
	}
	check.OK(g.t, r.Settle(g.t.Context(), used))
}

type clearedPool struct {
	Identity struct{ Kind, ID string }
	Limits   []struct {
		Name, Unit    string
		Capacity      int64
		Before, After struct{ Remaining, Debt int64 }
	}
	Forgiven int64
}

func TestPoolIsShown(t *testing.T) {
	t.Parallel()
	g := newRig(t, withPools)
	g.overspend(dollar * 3 / 2)
	var got struct {
		Identity struct{ Kind, ID string }
		Fuse     string
		Limits   []struct {
			Name, Unit                string
			Capacity, Remaining, Debt int64
		}
	}
	for target, want := range map[string][3]int64{"pool%23all": {1_000_000, 0, 500_000}, "pool%23anonymous": {10_000, 10_000, 0}} {
		g.read(g.do("GET", "/admin/limits?identity="+strings.ReplaceAll(target, "%23", "#"), ""), &got)
		l := got.Limits[0]
		check.That(t, len(got.Limits) == 1 && l.Name == "spend_ceiling" && l.Unit == "usd_micros" && [3]int64{l.Capacity, l.Remaining, l.Debt} == want && got.Identity.Kind == "pool" && got.Fuse == "closed",
			"%s: %+v, want %v", target, got, want)
	}
}

// A pool's debt is forgiven, with an audit: then the pool is empty, not full.
func TestPoolDebtIsForgiven(t *testing.T) {
	t.Parallel()
	g := newRig(t, withPools)
	g.overspend(dollar * 3 / 2)
	var got clearedPool
	g.read(g.do("POST", "/admin/limits/clear", `{"identity":"pool#all","type":"all","reason":"the provider credited it"}`), &got)
	l := got.Limits[0]
	check.That(t, got.Forgiven == 500_000 && l.Before.Debt == 500_000 && l.After.Debt == 0 && l.After.Remaining == 0 && got.Identity.ID == "pool#all", "%+v", got)
	audit := g.items("audit#")
	check.Must(t, len(audit) == 1, "%d audit items", len(audit))
	for attr, want := range map[string]string{"who": support, "whom": "pool#all", "what": "forgive the debt", "why": "the provider credited it"} {
		if got, _ := audit[0][attr].(*types.AttributeValueMemberS); got == nil || got.Value != want {
			t.Errorf("audit: %s is %v, want %q", attr, audit[0][attr], want)
		}
	}
	// Once more: nothing is owed any more, so nothing is changed.
	g.read(g.do("POST", "/admin/limits/clear", `{"identity":"pool#all","type":"spend_ceiling"}`), &got)
	if got.Forgiven != 0 || len(g.items("audit#")) != 1 {
		t.Errorf("forgave %d again, with %d audit items", got.Forgiven, len(g.items("audit#")))
	}
}

// What has no debt is left as it is, though it is used up or was never used.
func TestPoolWithoutADebt(t *testing.T) {
	t.Parallel()
	g := newRig(t, withPools)
	g.overspend(dollar) // all that may be spent at once
	for _, identity := range []string{"pool#all", "pool#anonymous"} {
		before := g.items(identity)
		var got clearedPool
		g.read(g.do("POST", "/admin/limits/clear", `{"identity":"`+identity+`","type":"all"}`), &got)
		if after := g.items(identity); got.Forgiven != 0 || len(after) != len(before) || len(g.items("audit#")) != 0 || got.Limits[0].Before != got.Limits[0].After {
			t.Errorf("%s: %+v, %d items of %d, %d audit items", identity, got, len(after), len(before), len(g.items("audit#")))
		}
	}
}

func TestPoolRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t, withPools)
	for _, tc := range []struct{ body, code, param string }{
		{`{"identity":"pool#none","type":"all"}`, "invalid_value", "identity"},
		{`{"identity":"pool#","type":"all"}`, "invalid_value", "identity"},
		{`{"identity":"pool#all","type":"tokens"}`, "invalid_value", "type"},
		{`{"identity":"pool#all"}`, "invalid_value", "type"},
		{`{"identity":"pool#all","user":"123","type":"all"}`, "invalid_value", "identity"},
	} {
		g.refused(g.do("POST", "/admin/limits/clear", tc.body), http.StatusBadRequest, tc.code, tc.param)
	}
	g.refused(g.do("GET", "/admin/limits?identity=pool#none", ""), http.StatusBadRequest, "invalid_value", "identity")
	// Without the audit, or the store, nothing is forgiven.
	g.overspend(2 * dollar)
	before := g.items("pool#all")[0]
	g.net.Plan = func(_ string, body []byte) faults.Fault {
		if strings.Contains(string(body), "audit#") {
			return faults.ServerError
		}
		return faults.None
	}
	g.refused(g.do("POST", "/admin/limits/clear", `{"identity":"pool#all","type":"all"}`), http.StatusServiceUnavailable, "store_unavailable", "")
	after := g.items("pool#all")[0]
	check.That(t, len(after) == len(before), "without an audit: %v, before %v", after, before)
}
