package admin

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// cleared is an answer to a clear.
type cleared struct {
	Identity struct{ Kind, ID string }
	Type     string
	Limits   []struct {
		Name, Client  string
		Tiers         []string
		Capacity      int64
		Before, After struct{ Remaining int64 }
		Others        []struct {
			Tiers         []string
			Capacity      int64
			Before, After struct{ Remaining int64 }
		} `json:"other_tiers"`
	}
}

func (g *rig) clear(body string) cleared {
	g.t.Helper()
	var c cleared
	g.read(g.do("POST", "/admin/limits/clear", body), &c)
	return c
}

// what gives a limit's figures before and after, by client and name.
func (c cleared) what() map[string][2]int64 {
	m := map[string][2]int64{}
	for _, l := range c.Limits {
		m[strings.TrimPrefix(l.Client+"/"+l.Name, "/")] = [2]int64{l.Before.Remaining, l.After.Remaining}
	}
	return m
}

func (c cleared) want(t *testing.T, want map[string][2]int64) {
	t.Helper()
	got := c.what()
	check.That(t, len(got) == len(c.Limits), "a limit stands twice: %+v", c.Limits)
	for name, figures := range want {
		check.Equal(t, got[name], figures, "%s: before and after", name)
	}
	check.That(t, len(got) == len(want), "limits %v, want %v", got, want)
}

// The scene that the routes exist for.
func TestSupportUnblocksByEmail(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	jane := user("auth0|123")
	check.OK(t, g.emails.Learn(t.Context(), "Jane@Example.com", "auth0|123"))
	draft := map[string]int64{"cv": 1, "tokens": 3000, "requests": 1, "spend": 100_000}
	for range 10 {
		g.spend(jane, "user", "", draft)
	}
	g.spend(jane, "user", "", map[string]int64{"linkedin": 3, "requests": 1})
	if d := g.reserve(jane, "user", "", draft); len(d.Denials) != 1 || d.Denials[0].Limit.Name != "cv" {
		t.Fatalf("%+v", d)
	}

	c := g.clear(`{"email":"jane@example.com","type":"cv","reason":"ticket 7: ten drafts failed"}`)
	c.want(t, map[string][2]int64{"cv": {0, 10}})
	check.That(t, c.Identity.Kind == "user" && c.Identity.ID == "auth0|123" && c.Type == "cv", "%+v", c)
	g.Advance(time.Second) // a warm process may repeat its denial so long
	d := g.reserve(jane, "user", "", draft)
	check.Must(t, d.Reservation != nil, "still denied: %+v", d.Denials)
	g.Advance(time.Second) // a guess that the clear made wrong costs a tenth of that
	left, _ := g.left("auth0|123")
	// The others are as they were, but for the draft and the seconds since.
	want := map[string]int64{"cv": 9, "linkedin": 17, "tokens": 50_000 - 11*3000 + 27, "requests": 60 - 12 + 2, "spend": 2_000_000 - 11*100_000 + 46}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}

	// Who, whom, what, why: kept a year, without the address.
	audit := g.items("audit#")
	check.Must(t, len(audit) == 1, "%d audit items", len(audit))
	for attr, want := range map[string]string{"who": support, "whom": "user#auth0|123", "what": "clear cv", "why": "ticket 7: ten drafts failed"} {
		if got, _ := audit[0][attr].(*types.AttributeValueMemberS); got == nil || got.Value != want {
			t.Errorf("%s is %v, want %s", attr, audit[0][attr], want)
		}
	}
	if key, at := audit[0]["pk"].(*types.AttributeValueMemberS).Value, audit[0]["at"].(*types.AttributeValueMemberN).Value; key != "audit#000000000001" || at != "1796040000" {
		t.Errorf("key %s at %s", key, at)
	}
	if got := audit[0]["expires"].(*types.AttributeValueMemberN).Value; got != "1827576000" { // 30 Nov 2027
		t.Errorf("expires %s", got)
	}
	changes := g.logged("limits cleared")
	check.That(t, len(changes) == 1 && changes[0]["arn"] == support && changes[0]["identity"] == "user#auth0|123", "log %v", changes)
	check.That(t, !strings.Contains(strings.ToLower(g.log.String()), "example.com"), "the log has the address")
}

func TestClearAll(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("123"), "user", "", map[string]int64{"cv": 10, "tokens": 50_000, "requests": 60, "spend": 2_000_000})
	c := g.clear(`{"user":"123","type":"all"}`)
	c.want(t, map[string][2]int64{"cv": {0, 10}, "tokens": {0, 50_000}, "requests": {0, 60}, "spend": {0, 2_000_000}, "linkedin": {20, 20}})
	g.Advance(time.Second)
	g.spend(user("123"), "user", "", map[string]int64{"cv": 10, "tokens": 50_000, "requests": 60, "spend": 2_000_000})
	linkedin := g.items("user#123")[0]["t_linkedin_86400"]
	check.That(t, linkedin == nil, "a limit that was never used is in the item")
	// Names of limits and of identities do as well.
	g.clear(`{"identity":"user#123","type":"tokens"}`).want(t, map[string][2]int64{"tokens": {0, 50_000}})
	g.clear(`{"user":"123","type":"linkedin","email":null}`).want(t, map[string][2]int64{"linkedin": {20, 20}})
	check.Equal(t, len(g.items("audit#")), 2, "audit items; what was full already is no change")
}

// What a limit's capacity is, only the user's token tells: each tier's figures are
// shown. A limit of another period is another limit.
func TestClearOfAPlan(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("123"), "pro", "", map[string]int64{"tokens": 300_000, "spend": 10_000_000, "cv": 1})
	c := g.clear(`{"user":"123","type":"all"}`)
	c.want(t, map[string][2]int64{"tokens": {12_500, 50_000}, "spend": {0, 10_000_000}, "cv": {9, 10}, "requests": {60, 60}, "linkedin": {20, 20}})
	for _, l := range c.Limits {
		check.That(t, l.Name != "tokens" || l.Tiers[0] == "user" && len(l.Others) == 1 && l.Others[0].Tiers[0] == "pro" && l.Others[0].Before.Remaining == 100_000 && l.Others[0].After.Remaining == 400_000,
			"tokens %+v", l)
		check.That(t, l.Name != "cv" || len(l.Tiers) == 2 && len(l.Others) == 0, "cv %+v", l)
	}
	g.Advance(time.Second)
	g.spend(user("123"), "pro", "", map[string]int64{"tokens": 400_000, "spend": 10_000_000})
}

// left gives what is left of a user's limits of tier user, by name, and the calls that
// are open.
func (g *rig) left(id string) (left map[string]int64, open int) {
	g.t.Helper()
	state, err := g.callers.Peek(g.t.Context(), user(id).key())
	check.OK(g.t, err)
	left = map[string]int64{}
	for _, l := range g.handler.held(&target{kind: limits.User, id: id, state: state}) {
		left[l.limit().Name] = l.limit().Shown(state.Limit(l.limit().Limit).Remaining)
	}
	return left, state.InFlight
}

// What a call gives back that was open at the clear, the clear has given already. It
// does give back what was not cleared.
func TestClearWhileACallIsOpen(t *testing.T) {
	t.Parallel()
	all := map[string]int64{"cv": 10, "tokens": 50_000}
	for _, test := range []struct {
		name, kind string
		clears     int
		ends       func(*bucket.Reservation, context.Context) error
		after      map[string]int64 // used after the clear
		cv, tokens int64            // left in the end
	}{
		{name: "cancelled", kind: "all", clears: 1, ends: (*bucket.Reservation).Cancel, after: all},
		{name: "used in part", kind: "all", clears: 1, after: all,
			ends: func(r *bucket.Reservation, ctx context.Context) error { return r.Settle(ctx, []int64{10_000, 1}) }},
		{name: "used in full", kind: "all", clears: 1, after: all,
			ends: func(r *bucket.Reservation, ctx context.Context) error { return r.Settle(ctx, []int64{50_000, 10}) }},
		{name: "cleared twice", kind: "all", clears: 2, ends: (*bucket.Reservation).Cancel, after: all},
		{name: "nothing used since", kind: "all", clears: 1, ends: (*bucket.Reservation).Cancel, cv: 10, tokens: 50_000},
		{name: "only one cleared", kind: "cv", clears: 1, ends: (*bucket.Reservation).Cancel, after: map[string]int64{"cv": 10}, tokens: 50_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			open := g.reserve(user("123"), "user", "", all)
			for range test.clears {
				g.clear(`{"user":"123","type":"` + test.kind + `"}`)
			}
			g.Advance(time.Second)
			if test.after != nil {
				g.spend(user("123"), "user", "", test.after)
			}
			check.OK(t, test.ends(open.Reservation, t.Context()))
			left, calls := g.left("123")
			check.That(t, left["cv"] == test.cv && left["tokens"] == test.tokens && calls == 0,
				"left %v, %d calls open; want cv %d, tokens %d", left, calls, test.cv, test.tokens)
			d := g.reserve(user("123"), "user", "", map[string]int64{"cv": test.cv + 1})
			check.That(t, d.Reservation == nil, "the open call credited the cleared quota")
		})
	}
}

// Clears amid calls of several processes: each is answered, nobody has more than each
// clear allows anew, and in the end the bucket is as good as new.
func TestClearInAStorm(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	const clears = 12
	costs := map[string]int64{"cv": 1, "tokens": 4000, "spend": 100_000}
	g.spend(user("123"), "user", "", costs)
	var admitted, finished atomic.Int64
	denied, stop := make(chan struct{}, 1), make(chan struct{})
	var processes, supporters sync.WaitGroup
	for i := range 6 {
		callers, err := bucket.New(g.db, bucket.Options{Table: g.table, Now: g.Now, LongestPeriod: 48 * time.Hour,
			AttemptTimeout: 20 * time.Second, ReserveTimeout: time.Minute, SettleTimeout: time.Minute})
		check.OK(t, err)
		processes.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				d, err := callers.Reserve(t.Context(), g.request(user("123"), "user", "", costs))
				if errors.Is(err, bucket.ErrUnavailable) { // the item changed under all its tries
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if d.Reservation == nil {
					select {
					case denied <- struct{}{}:
					default:
					}
					g.Advance(100 * time.Millisecond) // a denial is remembered
					continue
				}
				admitted.Add(1)
				used := make([]int64, len(d.Limits))
				if n%2 == 0 { // the others fail and get everything back
					finished.Add(1)
					for i, s := range d.Limits {
						used[i] = costs[s.Limit.Name]
					}
				}
				if err := d.Reservation.Settle(t.Context(), used); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		supporters.Go(func() {
			for range clears / 2 {
				<-denied
				c := g.clear(`{"user":"123","type":"all"}`)
				check.That(t, len(c.Limits) == 5, "%+v", c)
			}
		})
	}
	supporters.Wait()
	close(stop)
	processes.Wait()

	// Ten drafts at first and ten from each clear, and what the clock refilled.
	if n := finished.Load(); n > 10*(clears+1)+1 {
		t.Errorf("%d drafts for %d clears", n, clears)
	}
	left, open := g.left("123")
	check.Equal(t, open, 0, "calls count as open")
	for name, capacity := range map[string]int64{"cv": 10, "tokens": 50_000, "spend": 2_000_000} {
		check.That(t, left[name] >= 0 && left[name] <= capacity, "%d left of %s", left[name], name)
	}
	g.clear(`{"user":"123","type":"all"}`)
	g.Advance(time.Second)
	g.spend(user("123"), "user", "", map[string]int64{"cv": 10, "tokens": 50_000, "spend": 2_000_000})
	if d := g.reserve(user("123"), "user", "", map[string]int64{"cv": 1}); d.Reservation != nil {
		t.Error("an eleventh draft")
	}
	t.Logf("%d calls admitted, %d of them finished, in %d clears", admitted.Load(), finished.Load(), clears)
}

// Clearing twice is clearing once, one after the other or at once; each is in the audit.
func TestClearTwice(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("123"), "user", "", map[string]int64{"cv": 10, "tokens": 1000})
	g.clear(`{"user":"123","type":"cv"}`).want(t, map[string][2]int64{"cv": {0, 10}})
	g.clear(`{"user":"123","type":"cv"}`).want(t, map[string][2]int64{"cv": {10, 10}})
	g.Advance(time.Second)
	g.spend(user("123"), "user", "", map[string]int64{"cv": 10})
	var supporters sync.WaitGroup
	for range 4 {
		supporters.Go(func() {
			check.Equal(t, g.clear(`{"user":"123","type":"cv"}`).what()["cv"][1], 10, "left")
		})
	}
	supporters.Wait()
	if left, _ := g.left("123"); left["cv"] != 10 || left["tokens"] != 49_013 {
		t.Errorf("left %v", left)
	}
	check.Equal(t, len(g.items("audit#")), 6, "audit items of 6 clears")
}

func TestClearNetwork(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	const one, two = "AAAAAAAB", "AAAAAAAC"
	g.spend(net(network), "anonymous", one, map[string]int64{"network_tokens": 5000, "tokens": 5000, "requests": 20, "network_requests": 20, "visitor": 5})
	g.spend(net(network), "anonymous", two, map[string]int64{"network_tokens": 1000, "tokens": 1000})
	g.spend(net(network), "anonymous", "", map[string]int64{"passes": 30})

	const body = `{"identity":"net#aaaaaaaabbbbbbbb","type":`
	g.clear(body+`"tokens"}`).want(t, map[string][2]int64{one + "/tokens": {0, 5000}, two + "/tokens": {4000, 5000}})
	g.Advance(time.Second)
	g.spend(net(network), "anonymous", one, map[string]int64{"tokens": 5000})
	g.clear(body+`"all"}`).want(t, map[string][2]int64{
		"network_tokens": {44_013, 50_000}, "network_requests": {183, 200}, "passes": {0, 30},
		one + "/tokens": {0, 5000}, one + "/requests": {0, 20}, one + "/visitor": {0, 5},
		two + "/tokens": {5000, 5000},
	})
	g.Advance(time.Second)
	g.spend(net(network), "anonymous", one, map[string]int64{"network_tokens": 5000, "tokens": 5000, "requests": 20, "network_requests": 200, "visitor": 5})
	g.spend(net(network), "anonymous", "", map[string]int64{"passes": 30})

	// A limit that no client has used at the moment is no mistake.
	g.spend(net("ccccccccdddddddd"), "anonymous", "", map[string]int64{"passes": 1})
	g.clear(`{"identity":"net#ccccccccdddddddd","type":"requests"}`).want(t, nil)
}

func TestClearPass(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	const id = "0123456789abcdefABCD-_"
	g.spend(pass(id), "anonymous", "", map[string]int64{"pass_calls": 20, "tokens": 5000})
	g.clear(`{"identity":"pass#`+id+`","type":"pass_calls"}`).want(t, map[string][2]int64{"pass_calls": {0, 20}})
}

// Many quotas need several writes.
func TestClearManyLimits(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(yaml string) string {
		var more strings.Builder
		for _, c := range "abcdefghijklmnopqrstuvwxyz" {
			for _, d := range "xyz" {
				more.WriteString("  feature-with-a-long-name-" + string(c) + string(d) + ": {model: small, max_output_tokens: 400, tiers: [user], quota: {capacity: 5, per: 24h}}\n")
			}
		}
		return strings.Replace(yaml, "features:\n", "features:\n"+more.String(), 1)
	})
	for name, f := range g.policy.Features {
		if f.Quota != nil && f.AllowedFor("user") {
			g.spend(user("123"), "user", "", map[string]int64{name: 5})
		}
	}
	for name, figures := range g.clear(`{"user":"123","type":"all"}`).what() {
		check.That(t, !strings.HasPrefix(name, "feature-") || figures == [2]int64{0, 5}, "%s: %v", name, figures)
	}
}

func TestClearRefuses(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("123"), "user", "", map[string]int64{"tokens": 1})
	g.spend(net(network), "anonymous", "AAAAAAAB", map[string]int64{"network_tokens": 1, "tokens": 1})
	for _, sub := range []string{"123", "124"} {
		check.OK(t, g.emails.Learn(t.Context(), "both@example.com", sub))
	}
	check.OK(t, g.emails.Learn(t.Context(), "asleep@example.com", "125"))
	before := len(g.items(""))
	for _, test := range []struct {
		name, body  string
		status      int
		code, param string
	}{
		{"unknown user", `{"user":"typo","type":"all"}`, 404, "identity_not_found", "user"},
		{"unknown address", `{"email":"typo@example.com","type":"all"}`, 404, "identity_not_found", "email"},
		{"address of a user without limits", `{"email":"asleep@example.com","type":"all"}`, 404, "identity_not_found", "email"},
		{"address of two users", `{"email":"BOTH@example.com","type":"all"}`, 409, "ambiguous_email", "email"},
		{"unknown network", `{"identity":"net#aaaaaaaaaaaaaaaa","type":"all"}`, 404, "identity_not_found", "identity"},
		{"unknown pass", `{"identity":"pass#0123456789abcdefABCD-_","type":"all"}`, 404, "identity_not_found", "identity"},
		{"a pool", `{"identity":"pool#all","type":"all"}`, 400, "invalid_value", "identity"},
		{"the fuse", `{"identity":"fuse","type":"all"}`, 400, "invalid_value", "identity"},
		{"an audit item", `{"identity":"audit#2026","type":"all"}`, 400, "invalid_value", "identity"},
		{"no network key", `{"identity":"net#AAAAAAAAAAAAAAAA","type":"all"}`, 400, "invalid_value", "identity"},
		{"no user id", `{"user":"a b","type":"all"}`, 400, "invalid_value", "user"},
		{"a user's key as an id", `{"user":"user#123","type":"all"}`, 400, "invalid_value", "user"},
		{"no user id in an identity", `{"identity":"user#","type":"all"}`, 400, "invalid_value", "identity"},
		{"no address", `{"email":"123","type":"all"}`, 400, "invalid_value", "email"},
		{"nobody", `{"type":"all"}`, 400, "invalid_value", "user"},
		{"two", `{"user":"123","identity":"user#123","type":"all"}`, 400, "invalid_value", "identity"},
		{"a number", `{"user":123,"type":"all"}`, 400, "invalid_value", "user"},
		{"no type", `{"user":"123"}`, 400, "invalid_value", "type"},
		{"unknown type", `{"user":"123","type":"CV"}`, 400, "invalid_value", "type"},
		{"a feature without a quota", `{"user":"123","type":"docqa"}`, 400, "invalid_value", "type"},
		{"a feature of others", `{"user":"123","type":"visitor"}`, 400, "invalid_value", "type"},
		{"a limit of networks", `{"user":"123","type":"network_tokens"}`, 400, "invalid_value", "type"},
		{"a limit of users", `{"identity":"net#aaaaaaaabbbbbbbb","type":"spend"}`, 400, "invalid_value", "type"},
		{"calls in flight", `{"user":"123","type":"in_flight"}`, 400, "invalid_value", "type"},
		{"a reason of many lines", `{"user":"123","type":"all","reason":"a\nb"}`, 400, "invalid_value", "reason"},
		{"a long reason", `{"user":"123","type":"all","reason":"` + strings.Repeat("a", 501) + `"}`, 400, "invalid_value", "reason"},
		{"something else", `{"user":"123","type":"all","force":true}`, 400, "unsupported_parameter", "force"},
		{"another case", `{"User":"123","type":"all"}`, 400, "unsupported_parameter", "User"},
		{"twice", `{"user":"123","user":"124","type":"all"}`, 400, "invalid_json", "user"},
		{"no object", `["user"]`, 400, "invalid_json", ""},
		{"no JSON", `user=123`, 400, "invalid_json", ""},
		{"nothing", ``, 400, "invalid_json", ""},
		{"too much", `{"user":"` + strings.Repeat("1", 1<<20) + `"}`, 413, "body_too_large", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			g.t = t
			g.Advance(2 * time.Second) // the caller's own limit
			g.refused(g.do("POST", "/admin/limits/clear", test.body), test.status, test.code, test.param)
		})
	}
	g.t = t
	if after := len(g.items("")); after != before+1 { // the caller's own limit
		t.Errorf("%d items after, %d before: %v", after, before, g.items(""))
	}
	message := g.refused(g.do("POST", "/admin/limits/clear", `{"email":"both@example.com","type":"all"}`), 409, "ambiguous_email", "email")
	check.That(t, strings.Contains(message, "123, 124"), "the users are not named: %s", message)
	e := g.event("POST", "/admin/limits/clear", `{"user":"123","type":"all"}`)
	e.MultiValueHeaders["Content-Type"] = []string{"text/plain"}
	g.refused(g.send(e), 415, "unsupported_media_type", "")
}
