package chatapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// siege makes the anonymous tier what a public service would have: a network
// limit, passes, a challenge and pools.
func siege(yaml string) string {
	return strings.Replace(yaml, "limits: {tokens: {capacity: 5000, per: 1h}, requests: {capacity: 20, per: 1m}}}",
		`limits: {tokens: {capacity: 5000, per: 1h}, requests: {capacity: 20, per: 1m}}, challenge_at: 0.5, pool: anonymous,
              network: {tokens: {capacity: 50000, per: 1h}, requests: {capacity: 2000, per: 1m}, max_in_flight: 32},
              passes: {capacity: 30, per: 1h, ttl: 30m, calls: 20}}`, 1) + `
challenge: {kind: altcha, secret: {env: TEST_SECRET}}
pools: {anonymous: {usd: "1.00", per: 1h}, all: {usd: "20.00", per: 1h}}
`
}

// noChallenges leaves challenges out.
func noChallenges(yaml string) string {
	return strings.Replace(siege(yaml), "challenge: {kind: altcha, secret: {env: TEST_SECRET}}\n", "", 1)
}

// visit is a call of an anonymous browser.
func (g *rig) visit(addr, agent, body string) answer {
	g.t.Helper()
	return g.do(g.visitRequest(addr, agent, body))
}

func (g *rig) visitRequest(addr, agent, body string) *http.Request {
	r := g.request(http.MethodPost, "/v1/chat/completions", "", body)
	r.RemoteAddr = addr
	r.Header.Set("User-Agent", agent)
	r.Header.Set("Accept-Language", "en")
	r.Header.Set("Sec-Fetch-Mode", "cors")
	return r
}

// question is a call with a worst case of some hundred tokens.
const question = `{"model":"docqa","max_tokens":400,"messages":[{"role":"user","content":"[[long]] Why?"}]}`

// codeOf is the code of an error, or "" of a success.
func (g *rig) codeOf(a answer) string {
	g.t.Helper()
	if a.status == http.StatusOK {
		return ""
	}
	return g.wireError(a).Code
}

// usedTokens is what all answers so far used, by the model's own account.
func (g *rig) usedTokens() int64 {
	_, usage := g.upstream.Totals()
	return usage.Total()
}

func TestRotatingWhatIsFreeStaysWithinTheNetwork(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		visits int
		from   func(i int) (addr, agent string)
		forge  func(r *http.Request, i int)
	}{
		"1,000 user agents of one address": {visits: 1000, from: func(i int) (string, string) {
			return "203.0.113.7:1", fmt.Sprintf("agent/%d", i)
		}},
		"200 addresses of a /24": {visits: 1000, from: func(i int) (string, string) {
			return fmt.Sprintf("203.0.113.%d:1", i%200), fmt.Sprintf("agent/%d", i)
		}},
		"60,000 addresses of a /48": {visits: 60_000, from: func(i int) (string, string) {
			return fmt.Sprintf("[2001:db8:1:%x:%x::1]:1", i%250, i), fmt.Sprintf("agent/%d", i)
		}},
		"forged headers": {visits: 1000, from: func(i int) (string, string) {
			return "203.0.113.7:1", fmt.Sprintf("agent/%d", i)
		}, forge: func(r *http.Request, i int) {
			ip := fmt.Sprintf("198.51.%d.%d", i/250, i%250)
			r.Header.Set("X-Forwarded-For", ip)
			r.Header.Set("CloudFront-Viewer-Address", ip+":4711")
			r.Header.Set("CloudFront-Viewer-JA4-Fingerprint", fmt.Sprint(i))
			r.Header.Set("X-Origin-Secret", "guess")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, noChallenges)
			g.freeze(0)
			codes := map[string]int{}
			for i := range tc.visits {
				addr, agent := tc.from(i)
				r := g.visitRequest(addr, agent, question)
				if tc.forge != nil {
					tc.forge(r, i)
				}
				codes[g.codeOf(g.do(r))]++
			}
			used := g.usedTokens()
			check.That(t, used <= 50_000 && used >= 15_000, "%d tokens admitted, the network may have 50,000: %v", used, codes)
			addr, _ := tc.from(0)
			for _, l := range g.limitsOf(addr, "").Limits {
				check.That(t, l.Name != "network_tokens" || l.Remaining == 50_000-used, "%d of the network's tokens remain after %d were used", l.Remaining, used)
			}
			t.Logf("%d tokens of 50,000, %v", used, codes)
		})
	}
}

func TestNetworksStayWithinThePool(t *testing.T) {
	t.Parallel()
	g := newRig(t, noChallenges, func(yaml string) string {
		return strings.Replace(yaml, `anonymous: {usd: "1.00", per: 1h}`, `anonymous: {usd: "0.10", per: 1h}`, 1)
	})
	g.freeze(0)
	codes := map[string]int{}
	for i := range 1000 {
		codes[g.codeOf(g.visit(fmt.Sprintf("198.51.%d.7:1", i%250), fmt.Sprintf("agent/%d", i), question))]++
	}
	_, usage := g.upstream.Totals()
	cost := testPrices.Cost(usage)
	check.That(t, cost.MicroDollars() <= 25_000 && cost.MicroDollars() >= 20_000, "$%s was spent at one instant, a quarter of $0.10 may be", cost)
	check.That(t, codes["spend_ceiling_reached"] != 0 && len(codes) == 2, "answers %v", codes)
	// Honest about the wait, and nothing is taken from the caller.
	a := g.visit("192.0.2.1:1", "another", question)
	e := g.wireError(a)
	check.That(t, a.status == http.StatusServiceUnavailable && e.Code == "spend_ceiling_reached" && e.Type == "server_error" && a.header.Get("X-Should-Retry") == "false" && a.header.Get("Retry-After") != "" && *e.RetryAfter >= 1,
		"%d %+v %v", a.status, e, a.header)
	g.freeze(time.Duration(*e.RetryAfter) * time.Second)
	check.Equal(t, g.codeOf(g.visit("192.0.2.1:1", "another", question)), "", "after the wait")
	// Signed-in users draw on the pool of all alone.
	if a := g.chat(g.token("123", ""), question); a.status != http.StatusOK {
		t.Errorf("a user: %d %s", a.status, a.body)
	}
}

func TestChallengeFlow(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	const addr = "203.0.113.7:1"
	asks := 0
	var a answer
	for ; asks < 30; asks++ {
		if a = g.visit(addr, "browser", question); a.status != http.StatusOK {
			break
		}
	}
	var e struct {
		Error struct {
			Code, Message, Type string
			URL                 string `json:"challenge_url"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != http.StatusForbidden || e.Error.Code != "challenge_required" ||
		e.Error.URL != "https://example.com/v1/challenge" || a.header.Get("X-Should-Retry") != "false" {
		t.Fatalf("after %d calls: %d %s", asks, a.status, a.body)
	}
	before := g.usedTokens()
	pass := g.solve(addr)
	served := 0
	for range 25 {
		r := g.visitRequest(addr, "an SDK with another agent", question)
		r.Header.Set("X-Challenge-Pass", pass)
		if a = g.do(r); a.status != http.StatusOK {
			break
		}
		served++
	}
	// A pass holder has the tier's ordinary limits in an item of their own.
	if spent := g.usedTokens() - before; spent < 4500 || g.codeOf(a) != "rate_limit_exceeded" || g.wireError(a).Limit != "tokens" {
		t.Errorf("%d calls with the pass, %d tokens, then %s", served, spent, a.body)
	}
	view := g.limitsOf(addr, pass)
	check.That(t, view.Identity.Kind == "anonymous" && strings.HasPrefix(view.Identity.ID, "pass#") && !view.Challenge.Required, "limits %+v", view)
	if view := g.limitsOf(addr, ""); !strings.HasPrefix(view.Identity.ID, "net#") {
		t.Errorf("limits %+v", view)
	}
}

func TestPassIsCounted(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	const addr = "203.0.113.7:1"
	pass := g.solve(addr)
	little := `{"model":"docqa","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`
	for i := range 21 {
		r := g.visitRequest(addr, "browser", little)
		r.Header.Set("X-Challenge-Pass", pass)
		code := g.codeOf(g.do(r))
		want := map[bool]string{true: "", false: "challenge_required"}[i < 20]
		check.Must(t, code == want, "call %d: %q, want %q", i+1, code, want)
		g.freeze(5 * time.Second)
	}
}

func TestPassIsRefused(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	const addr = "203.0.113.7:1"
	pass := g.solve(addr)
	messages := map[string]bool{}
	refused := func(name, addr, pass string) {
		t.Helper()
		r := g.visitRequest(addr, "browser", question)
		r.Header.Set("X-Challenge-Pass", pass)
		a := g.do(r)
		e := g.wireError(a)
		check.That(t, a.status == http.StatusForbidden && e.Code == "challenge_failed" && strings.Contains(a.body, "challenge_url") && !messages[e.Message],
			"%s: %d %s", name, a.status, a.body)
		messages[e.Message] = true
	}
	refused("nonsense", addr, "nonsense")
	refused("forged", addr, "AAAAAA"+pass[6:])
	refused("of another network", "198.51.100.1:1", pass)
	g.freeze(31 * time.Minute)
	refused("expired", addr, pass)
	// A signed-in user needs none and is not asked.
	r := g.request(http.MethodPost, "/v1/chat/completions", g.token("123", ""), question)
	r.Header.Set("X-Challenge-Pass", "nonsense")
	if a := g.do(r); a.status != http.StatusOK {
		t.Errorf("a user: %d %s", a.status, a.body)
	}
}

func TestSolutionIsRefused(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege, func(yaml string) string {
		return strings.Replace(yaml, "passes: {capacity: 30,", "passes: {capacity: 3,", 1)
	})
	g.freeze(0)
	const addr = "203.0.113.7:1"
	payload := g.payload(addr)
	messages := map[string]bool{}
	refused := func(name, addr, body string) {
		t.Helper()
		a := g.post(addr, body)
		e := g.wireError(a)
		check.That(t, a.status == http.StatusForbidden && e.Code == "challenge_failed" && !messages[e.Message], "%s: %d %s", name, a.status, a.body)
		messages[e.Message] = true
	}
	refused("missing", addr, `{}`)
	refused("malformed", addr, `{"payload":"%%%"}`)
	refused("stolen", "198.51.100.1:1", `{"payload":"`+payload+`"}`)
	if a := g.post(addr, `{"payload":"`+payload+`","extra":1}`); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	refused("replayed", addr, `{"payload":"`+payload+`"}`)
	// A refused solution costs the network none of its passes.
	g.solve(addr)
	g.solve(addr)
	payload = g.payload(addr)
	a := g.post(addr, `{"payload":"`+payload+`"}`)
	if e := g.wireError(a); a.status != http.StatusTooManyRequests || e.Limit != "passes" {
		t.Errorf("the 4th pass: %d %s", a.status, a.body)
	}
	g.freeze(10 * time.Minute)
	refused("expired", addr, `{"payload":"`+payload+`"}`)
	for body, code := range map[string]string{`{`: "invalid_json", `[]`: "invalid_json", `{"payload":1}`: "invalid_value", `{"payload":"","payload":""}`: "invalid_json"} {
		check.Equal(t, g.codeOf(g.post(addr, body)), code, "%s", body)
	}
}

func TestTwoUsesOfOneSolution(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	const addr = "203.0.113.7:1"
	body := `{"payload":"` + g.payload(addr) + `"}`
	answers := make(chan int)
	for range 8 {
		go func() { answers <- g.post(addr, body).status }()
	}
	won := 0
	for range 8 {
		if <-answers == http.StatusOK {
			won++
		}
	}
	check.Equal(t, won, 1, "uses of one solution won")
}

// Across clients the call at which the challenge comes varies; for one client on
// one day it does not, in whatever process.
func TestThresholdCannotBeReadOff(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	// Small steps, so that the threshold shows.
	little := `{"model":"docqa","max_tokens":30,"messages":[{"role":"user","content":"[[long]] Why?"}]}`
	threshold := func(i int) int {
		n := 0
		for g.visit(fmt.Sprintf("198.51.%d.1:1", i), fmt.Sprintf("browser/%d", i), little).status == http.StatusOK {
			g.freeze(5 * time.Second)
			n++
		}
		return n
	}
	seen := map[int]int{}
	for i := range 50 {
		seen[threshold(i)]++
	}
	check.That(t, len(seen) >= 10, "the challenge came after %v", seen)
	// The same client in other processes with tables of their own, at the same time.
	start := g.now()
	var same []int
	for range 3 {
		other := newRig(t, siege)
		other.frozen.Store(start.UnixMicro())
		n := 0
		for other.visit("198.51.1.1:1", "browser/1", little).status == http.StatusOK {
			other.freeze(5 * time.Second)
			n++
		}
		same = append(same, n)
	}
	check.That(t, same[0] == same[1] && same[1] == same[2], "one client on one day was challenged after %v calls", same)
}

// An honest visitor beside a script that rotates its agent 8 times a second in the
// same network, and a signed-in user there, in virtual time.
func TestHonestNeighbours(t *testing.T) {
	t.Parallel()
	for name, scripted := range map[string]bool{"alone": false, "beside a script": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, siege)
			g.freeze(0)
			asked, served, userAsked, userServed := 0, 0, 0, 0
			passes := map[string]string{}
			user := g.token("123", "")
			for second := range 10 * 60 {
				if scripted {
					for i := range 8 {
						g.visit("203.0.113.66:1", fmt.Sprintf("script/%d.%d", second, i), question)
					}
				}
				if second%20 == 0 {
					honest := fmt.Sprintf("browser/%d", second/20%5)
					asked++
					try := func() answer {
						r := g.visitRequest("203.0.113.7:1", honest, `{"model":"docqa","max_tokens":200,"messages":[{"role":"user","content":"What is your opening time?"}]}`)
						if pass := passes[honest]; pass != "" {
							r.Header.Set("X-Challenge-Pass", pass)
						}
						return g.do(r)
					}
					a := try()
					if a.status == http.StatusForbidden || a.status == http.StatusTooManyRequests && passes[honest] == "" {
						passes[honest] = g.solve("203.0.113.7:1")
						a = try()
					}
					if a.status == http.StatusOK {
						served++
					}
				}
				if second%30 == 0 {
					userAsked++
					if g.chat(user, question).status == http.StatusOK {
						userServed++
					}
				}
				g.freeze(time.Second)
			}
			t.Logf("%d of %d honest calls and %d of %d of a user were served", served, asked, userServed, userAsked)
			check.That(t, served*100 >= asked*85, "%d of %d honest calls were served", served, asked)
			check.That(t, userServed == userAsked, "%d of %d calls of a signed-in user were served", userServed, userAsked)
		})
	}
}

func TestFuseIsObeyed(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	const addr = "203.0.113.7:1"
	pass := g.solve(addr)
	user := g.token("123", "")
	withPass := func() answer {
		r := g.visitRequest(addr, "browser", question)
		r.Header.Set("X-Challenge-Pass", pass)
		return g.do(r)
	}
	for _, tc := range []struct{ state, visitor, holder, user string }{
		{"closed", "", "", ""},
		{"challenge", "challenge_required", "", ""},
		{"anonymous_off", "fuse_open", "fuse_open", ""},
		{"open", "fuse_open", "fuse_open", "fuse_open"},
	} {
		g.setFuse(tc.state, g.now().Add(90*time.Second))
		g.freeze(4 * time.Second) // a state is obeyed within seconds
		before := g.usedTokens()
		visitor, holder, user := g.visit(addr, "browser", question), withPass(), g.chat(user, question)
		for i, got := range []string{g.codeOf(visitor), g.codeOf(holder), g.codeOf(user)} {
			want := []string{tc.visitor, tc.holder, tc.user}[i]
			check.That(t, got == want, "%s: caller %d got %q, want %q", tc.state, i, got, want)
		}
		if tc.state == "open" {
			e := g.wireError(user)
			check.That(t, user.status == http.StatusServiceUnavailable && *e.RetryAfter == 86 && user.header.Get("Retry-After") == "86" && user.header.Get("X-Should-Retry") == "false",
				"%d %s", user.status, user.body)
			check.That(t, g.usedTokens() == before, "a call was made through an open fuse")
		}
		view := g.limitsOf(addr, "")
		check.That(t, view.Fuse == tc.state && view.Challenge.Required == (tc.state == "challenge"), "%s: limits %+v", tc.state, view)
	}
	g.freeze(90 * time.Second) // it ends by itself
	check.Equal(t, g.codeOf(g.visit(addr, "browser", question)), "", "after the fuse's time")
	g.wantNothingOpen("user#123")
}

// A block is obeyed within seconds, by nobody else, and ends by itself. That of a network
// holds for the passes that the network got.
func TestBlocksAreObeyed(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	const addr, other = "203.0.113.7:1", "198.51.100.7:1"
	pass, ann := g.solve(addr), g.token("ann", "")
	withPass := func() answer {
		r := g.visitRequest(addr, "browser", question)
		r.Header.Set("X-Challenge-Pass", pass)
		return g.do(r)
	}
	callers := map[string]func() answer{
		"user#ann": func() answer { return g.chat(ann, question) }, "user#bob": func() answer { return g.chat(g.token("bob", ""), question) },
		"net": func() answer { return g.visit(addr, "browser", question) }, "other net": func() answer { return g.visit(other, "browser", question) },
		"pass": withPass,
	}
	w := fuse.NewWriter(engine.Client(enginetest.URL()), g.bucket.Table, g.now)
	for _, tc := range []struct {
		key     string
		blocked []string
	}{
		{"user#ann", []string{"user#ann"}},
		{g.limitsOf(addr, "").Identity.ID, []string{"net", "pass"}},
		{g.limitsOf(addr, pass).Identity.ID, []string{"pass"}},
	} {
		until := g.now().Add(90 * time.Second)
		check.OK(t, w.Block(t.Context(), tc.key, fuse.Block{Until: until, SetBy: "arn:of-somebody"}))
		g.freeze(4 * time.Second)
		for name, call := range callers {
			used, a := g.usedTokens(), call()
			if !slices.Contains(tc.blocked, name) {
				check.That(t, a.status == http.StatusOK, "%s while %s is blocked: %d %s", name, tc.key, a.status, a.body)
				continue
			}
			e := g.wireError(a)
			check.That(t, a.status == http.StatusForbidden && e.Code == "identity_blocked" && strings.Contains(e.Message, until.UTC().Format("2 January 2006 15:04:05 UTC")) &&
				strings.Contains(a.body, fmt.Sprintf(`"blocked_until":%d`, until.Unix())) && !strings.Contains(a.body, "somebody") &&
				a.header.Get("X-Should-Retry") == "false" && g.usedTokens() == used, "%s: %d %s", name, a.status, a.body)
		}
		a := g.do(g.request(http.MethodGet, "/v1/limits", ann, ""))
		check.Equal(t, strings.Contains(a.body, fmt.Sprintf(`"blocked_until":%d`, until.Unix())), tc.key == "user#ann", "shown in the limits of ann")
		g.freeze(90 * time.Second)
		for name, call := range callers {
			a := call()
			check.That(t, a.status == http.StatusOK, "%s after the block: %d %s", name, a.status, a.body)
		}
	}
	g.wantNothingOpen("user#ann")
}

func TestFuseNeverRead(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.fuseFails.Store(true)
	g.net.Plan = failing("GetItem")
	a := g.chat(g.token("123", ""), question)
	check.That(t, a.status == http.StatusServiceUnavailable && g.codeOf(a) == "store_unavailable", "%d %s", a.status, a.body)
	check.That(t, g.usedTokens() == 0, "a call was made")
	g.wantNothingOpen("user#123")
}

// Nothing in the table, the log or the answers lets one recover an address or an
// agent.
func TestNothingOfTheCallerIsKept(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	const addr, agent = "203.0.113.77", "Mozilla/5.0 (Peculiar; Agent)"
	bodies := ""
	for range 12 {
		a := g.visit(addr+":1", agent, question)
		bodies += a.body + fmt.Sprint(a.header)
	}
	pass := g.solve(addr + ":1")
	r := g.visitRequest(addr+":1", agent, question)
	r.Header.Set("X-Challenge-Pass", pass)
	a := g.do(r)
	bodies += a.body + fmt.Sprint(a.header) + pass
	db := engine.Client(enginetest.URL())
	scan, err := db.Scan(context.Background(), &dynamodb.ScanInput{TableName: &g.bucket.Table})
	check.OK(t, err)
	table, err := json.Marshal(scan.Items)
	check.Must(t, err == nil && len(scan.Items) >= 3, "%d items, %v", len(scan.Items), err)
	for where, text := range map[string]string{"table": string(table), "log": g.log.String(), "answers": bodies} {
		for _, secret := range []string{addr, "203.0.113", "Mozilla", "Peculiar", testSecret} {
			check.That(t, !strings.Contains(text, secret), "the %s holds %q", where, secret)
		}
	}
}
