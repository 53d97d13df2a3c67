package chatapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// asker is somebody who asks a rig's handler.
type asker struct {
	*rig
	sign func(*http.Request) // makes a request theirs
}

// askers make one of each kind, whom limits of each kind deny.
var askers = map[string]struct {
	edit func(string) string
	sign func(*rig) func(*http.Request)
	deny string // the limit
}{
	"a user, by tokens": {limitsOf(`tokens: {capacity: 3100, per: 1h}, requests: {capacity: 60, per: 1m}, spend: {usd: "2.00", per: 24h}`), asUser, "tokens"},
	"a user, by money":  {limitsOf(`tokens: {capacity: 50000, per: 1h}, requests: {capacity: 60, per: 1m}, spend: {usd: "0.004", per: 24h}`), asUser, "spend"},
	"a user, by a quota": {func(yaml string) string {
		return strings.Replace(yaml, `You answer questions.", `, `You answer questions.", quota: {capacity: 3, per: 24h}, `, 1)
	}, asUser, "docqa"},
	"a visitor": {noChallenges, asVisitor, "tokens"},
	"a network": {func(yaml string) string {
		return strings.Replace(noChallenges(yaml), "requests: {capacity: 2000,", "requests: {capacity: 2,", 1)
	}, asVisitor, "network_requests"},
	"a pass": {siege, asHolder, "tokens"},
}

func asUser(g *rig) func(*http.Request) {
	token, err := g.issuer.Token(issuer.Claims{Subject: "123", TTL: 48 * time.Hour})
	check.OK(g.t, err)
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func asVisitor(*rig) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("User-Agent", "browser") }
}

func asHolder(g *rig) func(*http.Request) {
	pass := g.solve("203.0.113.7:4711")
	return func(r *http.Request) { r.Header.Set(passHeader, pass) }
}

func (a asker) ask(stream bool) answer {
	a.t.Helper()
	r := a.request(http.MethodPost, chatPath, "", strings.TrimSuffix(question, "}")+fmt.Sprintf(`,"stream":%t}`, stream))
	a.sign(r)
	return a.do(r)
}

// view is what /v1/limits answers, by limit; nil is a refusal.
func (a asker) view() map[string]limits.View {
	a.t.Helper()
	r := a.request(http.MethodGet, "/v1/limits", "", "")
	a.sign(r)
	got := a.do(r)
	var all struct{ Limits []limits.View }
	if err := json.Unmarshal([]byte(got.body), &all); err != nil {
		a.t.Fatal(got.body)
	}
	if got.status != http.StatusOK {
		return nil
	}
	views := map[string]limits.View{}
	for _, v := range all.Limits {
		views[v.Name] = v
	}
	return views
}

// What the headers say is so, and what they promise comes true: not before, and not later
// by more than a second. That is checked of each limit, by letting the time pass.
func TestHeadersAreTrue(t *testing.T) {
	t.Parallel()
	for name, tc := range askers {
		for _, how := range []string{whole, inEvents, "denied"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				g := newRig(t, tc.edit)
				g.freeze(0)
				who := asker{g, tc.sign(g)}
				a := who.ask(how == inEvents)
				for how == "denied" && a.status == http.StatusOK {
					a = who.ask(false)
				}
				want := map[bool]int{true: http.StatusTooManyRequests, false: http.StatusOK}[how == "denied"]
				check.Must(t, a.status == want, "%d %s", a.status, a.body)
				states, view := list(t, a, "RateLimit"), who.view()
				for i, p := range list(t, a, "RateLimit-Policy") {
					v := view[p.name]
					unit := p.params["qu"]
					if unit == nil {
						unit = "requests"
					}
					check.That(t, p.name == states[i].name && p.params["q"] == v.Capacity && p.params["w"] == v.Period && unit == string(v.Unit),
						"policy %v, state %v, shown %+v", p, states[i], v)
				}
				if how == inEvents { // the headers have the worst case taken, the last chunk what was used
					var last struct{ Limits []limits.View }
					data := streamed(a.body)
					if err := json.Unmarshal([]byte(data[len(data)-2]), &last); err != nil || len(last.Limits) != len(states) {
						t.Fatalf("%v: %s", err, data[len(data)-2])
					}
					for i, v := range last.Limits {
						r := states[i].params["r"].(int64)
						check.That(t, v == view[v.Name] && r <= v.Remaining, "told %+v at the end and %d at the beginning, shown %+v", v, r, view[v.Name])
					}
					return
				}
				g.wantTightest(a, view)
				if how == "denied" {
					e := g.wireError(a)
					check.That(t, e.Limit == tc.deny, "denied by %s", e.Limit)
				}
				begun := g.now()
				at := func(d time.Duration) map[string]limits.View {
					g.freeze(begun.Add(d).Sub(g.now()))
					return who.view()
				}
				in := func(i item) time.Duration {
					seconds := i.params["t"].(int64)
					return time.Duration(seconds) * time.Second
				}
				slices.SortFunc(states, func(a, b item) int { return cmp.Compare(in(a), in(b)) })
				for _, s := range states {
					left := s.params["r"].(int64)
					if v := view[s.name]; v.Remaining != left || (in(s) == 0) != (left == v.Capacity) {
						t.Errorf("told %v, shown %+v", s, v)
					}
					if in(s) == 0 {
						continue
					}
					exact := how != "denied" || s.name != "spend" // who is denied may need but a part of a micro-dollar
					if v := at(in(s) - time.Second)[s.name]; v.Remaining != left && exact {
						t.Errorf("%v: %d a second before", s, v.Remaining)
					}
					switch after := at(in(s)); {
					case s.name == "pass_calls":
						check.That(t, after == nil, "%v: the pass is still good: %+v", s, after)
					case after[s.name].Remaining <= left && exact:
						t.Errorf("%v: %d then", s, after[s.name].Remaining)
					}
				}
			})
		}
	}
}

// wantTightest asserts that OpenAI's headers tell the limit with the least remaining, and
// no more requests than a pass has calls.
func (g *rig) wantTightest(a answer, view map[string]limits.View) {
	g.t.Helper()
	for _, unit := range []string{"tokens", "requests"} {
		var least *limits.View
		for _, s := range list(g.t, a, "RateLimit") {
			if v := view[s.name]; string(v.Unit) == unit && (least == nil || v.Remaining < least.Remaining) {
				least = &v
			}
		}
		left := least.Remaining
		if calls, ok := view["pass_calls"]; ok && unit == "requests" {
			left = min(left, calls.Remaining)
		}
		reset, err := time.ParseDuration(a.header.Get("X-Ratelimit-Reset-" + unit))
		check.That(g.t, intHeader(g.t, a, "X-Ratelimit-Limit-"+unit) == least.Capacity && intHeader(g.t, a, "X-Ratelimit-Remaining-"+unit) == left && err == nil && int64((reset+time.Second-1)/time.Second) == least.Reset,
			"%v, want %+v", a.header, *least)
	}
}

// Who comes back after Retry-After is served, and who comes a second before is not:
// whatever refused. Where no limit of the caller's did, none is told.
func TestWhoComesBack(t *testing.T) {
	t.Parallel()
	type refusal struct {
		edit    func(string) string
		sign    func(*rig) func(*http.Request)
		prepare func(*rig)
		code    string
	}
	tests := map[string]refusal{
		"the pool": {func(yaml string) string {
			return strings.Replace(siege(yaml), `anonymous: {usd: "1.00"`, `anonymous: {usd: "0.008"`, 1)
		}, asHolder, nil, "spend_ceiling_reached"},
		"the fuse": {siege, asUser, func(g *rig) { g.setFuse("open", g.now().Add(90*time.Second)); g.freeze(4 * time.Second) }, "fuse_open"},
	}
	for name, tc := range askers {
		tests[name] = refusal{tc.edit, tc.sign, nil, ""}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, tc.edit)
			g.freeze(0)
			who := asker{g, func(*http.Request) {}}
			who.sign = tc.sign(g)
			if tc.prepare != nil {
				tc.prepare(g)
			}
			a := who.ask(false)
			for a.status == http.StatusOK {
				a = who.ask(false)
			}
			got := g.codeOf(a)
			check.Must(t, tc.code == "" || got == tc.code, "%d %s", a.status, a.body)
			for header := range a.header {
				check.That(t, tc.code == "" || !strings.Contains(strings.ToLower(header), "ratelimit"), "header %s", header)
			}
			wait, err := strconv.Atoi(a.header.Get("Retry-After"))
			check.Must(t, err == nil && wait >= 1, "Retry-After %q: %s", a.header.Get("Retry-After"), a.body)
			g.freeze(time.Duration(wait)*time.Second - 1001*time.Millisecond)
			if b := who.ask(false); b.status != a.status {
				t.Errorf("more than a second before: %d %s", b.status, b.body)
			}
			g.freeze(1001 * time.Millisecond)
			if b := who.ask(false); b.status != http.StatusOK {
				t.Errorf("after %d s: %d %s", wait, b.status, b.body)
			}
		})
	}
}

// What came back while the model was thinking is told, too: the headers are of the moment
// when they are sent.
func TestHeadersOfALateStream(t *testing.T) {
	t.Parallel()
	var f *front
	f = newFront(t, func(w http.ResponseWriter, r *http.Request) {
		f.freeze(10 * time.Second)
		answering(`{"prompt_tokens":40,"completion_tokens":2}`)(nil).ServeHTTP(w, r)
	})
	a := f.do(f.request(http.MethodPost, chatPath, f.token, cvCall("Hi.", true)))
	tokens := 50_000 - f.reserved() + 138 // 13.9 a second
	want := fmt.Sprintf(`"requests";r=60;t=0, "tokens";r=%d;`, tokens)
	check.That(t, strings.HasPrefix(a.header.Get("RateLimit"), want), "RateLimit %q, want %s", a.header.Get("RateLimit"), want)
}

// If the settle fails, the worst case stays taken, and that is what is told.
func TestWhatAFailedSettleLeaves(t *testing.T) {
	t.Parallel()
	eachWay(t, both, func(t *testing.T, stream bool) {
		g := setup{bucket: bucket.Options{AttemptTimeout: time.Second, ReserveTimeout: time.Minute, SettleTimeout: time.Second}}.newRig(t)
		g.freeze(0)
		var writes atomic.Int64
		g.net.Plan = func(string, []byte) faults.Fault {
			if writes.Add(1) == 1 {
				return faults.None
			}
			return faults.ServerError
		}
		who := asker{g, asUser(g)}
		a := who.ask(stream)
		g.net.Plan = nil
		left := who.view()["tokens"].Remaining
		if want := fmt.Sprintf(`"tokens";r=%d;`, left); a.status != http.StatusOK || left > 50_000-400 || !strings.Contains(a.header.Get("RateLimit"), want) {
			t.Errorf("%d, %d tokens are left, told %q", a.status, left, a.header.Get("RateLimit"))
		}
		if want := fmt.Sprintf(`"remaining":%d`, left); stream && !strings.Contains(a.body, want) {
			t.Errorf("%d tokens are left: %s", left, a.body)
		}
	})
}

// A pass is told as it is: a number of calls, until it ends. They are no requests, but
// whoever counts requests is told of no more than the pass will allow.
func TestPassIsTold(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	who := asker{g, asHolder(g)}
	ask := func() answer {
		r := g.request(http.MethodPost, chatPath, "", `{"model":"docqa","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`)
		who.sign(r)
		return g.do(r)
	}
	for used := 1; used <= 20; used++ {
		a := ask()
		left, ends := int64(20-used), 1800-int64(used-1)*10
		check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
		p := list(t, a, "RateLimit-Policy")[0]
		check.That(t, p.name == "pass_calls" && p.params["q"] == int64(20) && p.params["w"] == int64(1800) && p.params["qu"] == "calls", "RateLimit-Policy %v", p)
		s := list(t, a, "RateLimit")[0]
		check.That(t, s.name == "pass_calls" && s.params["r"] == left && s.params["t"] == ends, "RateLimit %v, want %d for %d s", s, left, ends)
		if limit, remaining := intHeader(t, a, "X-Ratelimit-Limit-Requests"), intHeader(t, a, "X-Ratelimit-Remaining-Requests"); limit != 20 || remaining != min(19, left) {
			t.Errorf("%d of %d requests, %d calls left", remaining, limit, left)
		}
		want := limits.View{Name: "pass_calls", Unit: "calls", Capacity: 20, Period: 1800, Left: limits.Left{Remaining: left, Reset: ends}}
		if left == 0 {
			want.RetryAfter = ends
		}
		check.Equal(t, who.view()["pass_calls"], want, "shown")
		g.freeze(10 * time.Second)
	}
	if a := ask(); g.codeOf(a) != "challenge_required" || a.header.Get("RateLimit") != "" || a.header.Get("Retry-After") != "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	// What the tokens of a pass would need to come back ends with the pass, too, and so does
	// the wait of whom they deny.
	who.sign = asHolder(g)
	g.freeze(1780 * time.Second)
	a := who.ask(false)
	for a.status == http.StatusOK {
		a = who.ask(false)
	}
	e := g.wireError(a)
	check.That(t, e.Limit == "tokens" && *e.RetryAfter == 20, "%d %s", a.status, a.body)
	for name, v := range who.view() {
		check.That(t, v.Reset <= 20, "%s: %+v, of a pass that ends in 20 s", name, v)
	}
}
