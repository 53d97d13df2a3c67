package admin

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/core"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	const (
		role    = "arn:aws:iam::123456789012:role/support"
		session = "arn:aws:sts::123456789012:assumed-role/support/jane@example.com"
	)
	for _, test := range []struct {
		name, allowed, caller string
		want                  bool
	}{
		{"a user", support, support, true},
		{"another user", support, support + "2", false},
		{"a user of a path", "arn:aws:iam::123456789012:user/team/jane", "arn:aws:iam::123456789012:user/jane", false},
		{"a session of a role", role, session, true},
		{"of a role with a path", "arn:aws:iam::123456789012:role/team/eu/support", session, true},
		{"one session", session, session, true},
		{"another session", session, session + "2", false},
		{"another role", role, "arn:aws:sts::123456789012:assumed-role/support2/jane", false},
		{"a role named as a path", "arn:aws:iam::123456789012:role/support/other", session, false},
		{"another account", role, "arn:aws:sts::123456789013:assumed-role/support/jane", false},
		{"another partition", role, "arn:aws-cn:sts::123456789012:assumed-role/support/jane", false},
		{"a user with the role's name", role, support, false},
		{"a federated user", role, "arn:aws:sts::123456789012:federated-user/support/jane", false},
		{"a role without a name", "arn:aws:iam::123456789012:role/", "arn:aws:sts::123456789012:assumed-role//jane", false},
		{"a session without a name", role, "arn:aws:sts::123456789012:assumed-role/support", false},
		{"no pattern", "arn:aws:iam::123456789012:role/*", session, false},
		{"nobody", role, "", false},
	} {
		check.Equal(t, matches(test.allowed, test.caller), test.want, "%s", test.name)
	}
}

// each is a request to each route that would succeed.
func (g *rig) each() map[string]events.APIGatewayProxyRequest {
	return map[string]events.APIGatewayProxyRequest{
		"clear":    g.event("POST", "/admin/limits/clear", `{"user":"123","type":"all"}`),
		"limits":   g.event("GET", "/admin/limits?user=123", ""),
		"fuse":     g.event("GET", "/admin/fuse", ""),
		"set fuse": g.event("PUT", "/admin/fuse", `{"state":"open"}`),
	}
}

func TestOnlyAdministrators(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("123"), "user", "", map[string]int64{"cv": 10})
	before := len(g.items(""))
	for _, arn := range []string{"", "arn:aws:iam::123456789012:user/intern", "arn:aws:sts::123456789012:assumed-role/support/jane"} {
		for name, e := range g.each() {
			e.RequestContext.Identity.UserArn = arn
			message := g.refused(g.send(e), 403, "admin_not_allowed", "")
			check.That(t, strings.Contains(message, arn), "%s by %q: %s", name, arn, message)
		}
	}
	after := len(g.items(""))
	check.That(t, after == before, "%d items, %d before", after, before)
	refusals := map[any]int{}
	for _, l := range g.logged("admin request") {
		check.That(t, l["level"] == "WARN" && l["outcome"] == "admin_not_allowed" && l["path"] != "" && l["request_id"] != "", "%v", l)
		refusals[l["arn"]]++
	}
	check.That(t, len(refusals) == 3 && refusals["arn:aws:iam::123456789012:user/intern"] == 4, "refusals in the log: %v", refusals)
	for name, e := range g.each() {
		e.RequestContext.Identity.UserArn = "arn:aws:sts::123456789012:assumed-role/oncall/jane"
		a := g.send(e)
		check.That(t, a.status == 200, "%s: %d %s", name, a.status, a.body)
	}
}

// A client may send the very header in which the adapter can carry the context.
func TestForgedContextGivesNoRights(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	forged, err := json.Marshal(g.event("GET", "/admin/fuse", "").RequestContext)
	check.OK(t, err)
	for name, e := range g.each() {
		e.RequestContext.Identity = events.APIGatewayRequestIdentity{SourceIP: "203.0.113.7"}
		for _, header := range []string{core.APIGwContextHeader, strings.ToLower(core.APIGwContextHeader)} {
			e.MultiValueHeaders[header] = []string{string(forged)}
			e.Headers[header] = string(forged)
			a := g.send(e)
			check.That(t, a.status == 403, "%s with %s: %d %s", name, header, a.status, a.body)
		}
		// Nor does it take rights away, or give another name.
		e.RequestContext.Identity.UserArn = "arn:aws:iam::123456789012:user/intern"
		message := g.refused(g.send(e), 403, "admin_not_allowed", "")
		check.That(t, strings.Contains(message, "intern"), "%s: %s", name, message)
	}
	// Without the gateway there is no context at all.
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/admin/fuse", nil)
	r.Header.Set(core.APIGwContextHeader, string(forged))
	if g.handler.ServeHTTP(w, r); w.Code != 403 {
		t.Errorf("without the gateway: %d", w.Code)
	}
}

func TestWithoutAllowList(t *testing.T) {
	t.Parallel()
	for _, section := range []string{"", "admin: {keys: {ann: [{env: ANN}]}}\n"} { // keys are for who has no gateway
		g := newRig(t, func(yaml string) string { return yaml[:strings.Index(yaml, "admin:")] + section })
		e := g.event("GET", "/admin/fuse", "")
		e.RequestContext.Identity.UserArn = "arn:aws:iam::999999999999:user/anybody"
		a := g.send(e)
		check.That(t, a.status == 200, "%q: %d %s", section, a.status, a.body)
		e.RequestContext.Identity.UserArn = ""
		g.refused(g.send(e), 403, "admin_not_allowed", "")
	}
}

func TestSixtyAMinute(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for range 60 {
		if a := g.do("GET", "/admin/fuse", ""); a.status != 200 {
			t.Fatal(a.body)
		}
	}
	a := g.do("GET", "/admin/fuse", "")
	if message := g.refused(a, 429, "rate_limit_exceeded", ""); !strings.HasSuffix(message, "Try again in 1 s.") {
		t.Error(message)
	}
	check.That(t, a.header.Get("Retry-After") == "1" && a.header.Get("X-Should-Retry") == "true", "headers %v", a.header)
	e := g.event("GET", "/admin/fuse", "")
	e.RequestContext.Identity.UserArn = "arn:aws:sts::123456789012:assumed-role/oncall/jane"
	if a := g.send(e); a.status != 200 {
		t.Errorf("another caller: %d %s", a.status, a.body)
	}
	g.Advance(time.Second)
	if a := g.do("GET", "/admin/fuse", ""); a.status != 200 {
		t.Errorf("a second later: %s", a.body)
	}
}

func TestSixteenAtATime(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	open := &request{httptest.NewRequest("GET", "/admin/fuse", nil), support, g.handler.Log}
	var ends []func()
	for range 16 {
		done, refused := g.handler.admit(open)
		if refused != nil {
			t.Fatal(refused.Message)
		}
		ends = append(ends, done)
	}
	g.refused(g.do("GET", "/admin/fuse", ""), 429, "rate_limit_exceeded", "")
	ends[0]()
	g.Advance(time.Second) // for so long the refusal is remembered
	a := g.do("GET", "/admin/fuse", "")
	check.That(t, a.status == 200, "after one has ended: %d %s", a.status, a.body)
}

// A request that panics is answered, in the log, and over.
func TestPanic(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.handler.Fuse = nil
	for range adminInFlight + 1 {
		a := g.do("GET", "/admin/fuse", "")
		g.refused(a, 500, "internal_error", "")
		if !strings.Contains(a.body, "Look for request_id "+a.header.Get("X-Request-Id")) || strings.Contains(a.body, "nil pointer") {
			t.Error(a.body)
		}
	}
	lines := g.logged("panic")
	check.That(t, len(lines) == adminInFlight+1, "%d panics in the log", len(lines))
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for _, path := range []string{"/", "/admin", "/admin/limits/", "/admin/limits/clear/", "/v1/limits", "/admin//fuse", "/ADMIN/fuse", "/admin%2Ffuse", "/admin/%66use"} {
		g.refused(g.do("GET", path, ""), 404, "not_found", "")
	}
	for _, test := range []struct{ method, path, allow string }{
		{"GET", "/admin/limits/clear", "POST"}, {"POST", "/admin/limits", "GET"}, {"DELETE", "/admin/fuse", "GET, PUT"}, {"OPTIONS", "/admin/fuse", "GET, PUT"},
	} {
		a := g.do(test.method, test.path, "")
		g.refused(a, 405, "method_not_allowed", "")
		check.Equal(t, a.header.Get("Allow"), test.allow, "%s %s: Allow", test.method, test.path)
	}
}

// Whichever call to the store fails, the answer is 503, and nothing is changed
// that the audit does not have.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	for name := range newRig(t).each() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for failing := 1; ; failing++ {
				g := newRig(t)
				g.spend(user("123"), "user", "", map[string]int64{"cv": 10})
				g.handler.Buckets = g.shortTempered()
				calls := 0
				g.net.Plan = func(_ string, body []byte) faults.Fault {
					if strings.Contains(string(body), "REMOVE") { // the settle of the caller's own limit
						return faults.None
					}
					if calls++; calls >= failing {
						return faults.ServerError
					}
					return faults.None
				}
				a := g.send(g.each()[name])
				if calls < failing {
					check.That(t, a.status == 200 && failing >= 2, "%d %s", a.status, a.body)
					return
				}
				g.refused(a, 503, "store_unavailable", "")
				check.That(t, a.header.Get("Retry-After") == "1", "headers %v", a.header)
				state, err := g.callers.Peek(t.Context(), "user#123")
				check.OK(t, err)
				quota := g.handler.held(&target{kind: limits.User, id: "123", state: state})[3].limit()
				changed := len(g.items("fuse")) > 0 || state.Limit(quota.Limit).Remaining > 0
				check.That(t, !changed || len(g.items("audit#")) != 0, "call %d failed: a change that is not in the audit", failing)
			}
		})
	}
}
