package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("123"), "user", "", map[string]int64{"cv": 4, "tokens": 25_000})
	open := g.reserve(user("123"), "user", "", map[string]int64{"requests": 60})
	a := g.do("GET", "/admin/limits?user=123", "")
	want := `{"identity":{"kind":"user","id":"123","tier":null},"fuse":"closed","challenge":{"required":false},"limits":[
		{"name":"requests","unit":"requests","capacity":60,"period_seconds":60,"remaining":0,"reset_seconds":60,"retry_after_seconds":1,"tiers":["user"],
			"other_tiers":[{"tiers":["pro"],"capacity":120,"remaining":0,"reset_seconds":60,"retry_after_seconds":1}]},
		{"name":"tokens","unit":"tokens","capacity":50000,"period_seconds":3600,"remaining":25000,"reset_seconds":1800,"retry_after_seconds":0,"tiers":["user"],
			"other_tiers":[{"tiers":["pro"],"capacity":400000,"remaining":200000,"reset_seconds":1800,"retry_after_seconds":0}]},
		{"name":"spend","unit":"usd_micros","capacity":2000000,"period_seconds":86400,"remaining":2000000,"reset_seconds":0,"retry_after_seconds":0,"tiers":["user"]},
		{"name":"cv","unit":"requests","capacity":10,"period_seconds":86400,"remaining":6,"reset_seconds":34560,"retry_after_seconds":0,"tiers":["user","pro"]},
		{"name":"linkedin","unit":"requests","capacity":20,"period_seconds":86400,"remaining":20,"reset_seconds":0,"retry_after_seconds":0,"tiers":["user","pro"]}],
		"in_flight":1,"holds":[{"id":"` + open.Reservation.ID() + `","started_at":1796040000,"expires_at":1796040070}]}`
	var got, wanted any
	g.read(a, &got)
	check.OK(t, json.Unmarshal([]byte(want), &wanted))
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Error(diff)
	}
	for name := range a.header {
		check.That(t, !strings.HasPrefix(name, "Access-Control-"), "header %s", name)
	}
}

func TestLimitsOfNetwork(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(net(network), "anonymous", "AAAAAAAB", map[string]int64{"network_tokens": 1000, "tokens": 5000})
	if a := g.do("PUT", "/admin/fuse", `{"state":"challenge"}`); a.status != 200 {
		t.Fatal(a.body)
	}
	var view struct {
		Identity struct {
			Kind, ID string
			Tier     *string
		}
		Fuse      string
		Challenge struct{ Required bool }
		Limits    []struct {
			Name, Client string
			Remaining    int64
		}
		Holds []any
	}
	g.read(g.do("GET", "/admin/limits?identity=net#"+network, ""), &view)
	check.That(t, view.Identity.Kind == "anonymous" && view.Identity.ID == "net#"+network && view.Identity.Tier != nil && *view.Identity.Tier == "anonymous" && view.Fuse == "challenge" && view.Challenge.Required && view.Holds != nil,
		"%+v", view)
	got := map[string]int64{}
	for _, l := range view.Limits {
		got[l.Client+"/"+l.Name] = l.Remaining
	}
	want := map[string]int64{"/network_tokens": 49_000, "/network_requests": 200, "/passes": 30, "AAAAAAAB/tokens": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLimitsRefuses(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for target, want := range map[string]struct {
		status      int
		code, param string
	}{
		"/admin/limits":                        {400, "invalid_value", "user"},
		"/admin/limits?user=typo":              {404, "identity_not_found", "user"},
		"/admin/limits?email=a@example.com":    {404, "identity_not_found", "email"},
		"/admin/limits?email=a":                {400, "invalid_value", "email"},
		"/admin/limits?user=1&user=2":          {400, "invalid_value", "user"},
		"/admin/limits?user=1&identity=user#1": {400, "invalid_value", "identity"},
		"/admin/limits?identity=used#1":        {400, "invalid_value", "identity"},
	} {
		g.refused(g.do("GET", target, ""), want.status, want.code, want.param)
		g.Advance(2 * time.Second)
	}
	check.Equal(t, len(g.items("user#"))+len(g.items("email#")), 0, "items were made")
	// Without a key for the hashes there are no addresses.
	g.handler.Emails = nil
	g.refused(g.do("GET", "/admin/limits?email=a@example.com", ""), 400, "invalid_value", "email")
}

// A backend's visitors are found and cleared by their keys, as the log has them.
func TestVisitorsOfBackends(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for key, test := range map[string]struct {
		who          *target
		tier, client string
		kind         string
	}{
		"user#web#" + network:                 {user("web#" + network), "user", "", "user"},
		"net#web#" + network:                  {net("web#" + network), "anonymous", "AAAAAAAB", "anonymous"},
		"pass#web#" + strings.Repeat("A", 22): {pass("web#" + strings.Repeat("A", 22)), "anonymous", "", "anonymous"},
	} {
		g.spend(test.who, test.tier, test.client, map[string]int64{"tokens": 5000})
		var view struct{ Identity struct{ Kind, ID string } }
		g.read(g.do("GET", "/admin/limits?identity="+key, ""), &view)
		check.That(t, view.Identity.Kind == test.kind && view.Identity.ID == key, "%s is %+v", key, view.Identity)
		a := g.do("POST", "/admin/limits/clear", `{"identity":"`+key+`","type":"tokens"}`)
		check.That(t, a.status == 200, "%s: %s", key, a.body)
		state, err := g.callers.Peek(t.Context(), key)
		check.OK(t, err)
		for _, l := range g.handler.held(&target{kind: test.who.kind, id: test.who.id, state: state}) {
			if s := l.status(state, l.versions[0]); l.limit().Name == "tokens" && s.Remaining != s.Limit.Capacity {
				t.Errorf("%s has %d tokens of %d after the clear", key, s.Remaining, s.Limit.Capacity)
			}
		}
	}
	for _, key := range []string{"user#web#123", "user#web#", "net#web#x", "user##" + network} {
		g.refused(g.do("GET", "/admin/limits?identity="+key, ""), 400, "invalid_value", "identity")
	}
}
