package chatapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/widget"
)

// withBackends has two servers that call for visitors, in front of siege's tiers.
func withBackends(yaml string) string {
	return strings.Replace(siege(yaml), "pools: {", `backends:
  web:  {secrets: [{env: BACKEND_NEW}, {env: BACKEND_OLD}], token: {claim: sub, values: [web-server]}, tiers: [user, pro], pool: web}
  shop: {secrets: [{env: BACKEND_SHOP}], pool: shop}
pools: {web: {usd: "0.40", per: 1h}, shop: {usd: "0.40", per: 1h}, `, 1)
}

var webSecret, oldSecret, shopSecret = backendSecret("BACKEND_NEW"), backendSecret("BACKEND_OLD"), backendSecret("BACKEND_SHOP")

// known is what a backend says of its visitor, header by header.
func known(pairs ...string) func(*http.Request) {
	return func(r *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			r.Header.Add(pairs[i], pairs[i+1])
		}
	}
}

func byAddress(addr string) func(*http.Request) {
	return known(visitorAddress, addr, visitorAgent, "Mozilla/5.0 of somebody")
}

func byID(id string) func(*http.Request) { return known(visitorID, id) }

func vouched(id, tier string) func(*http.Request) { return known(visitorID, id, visitorTier, tier) }

// via makes a request of a backend, from the server's own address.
func (g *rig) via(key string, who func(*http.Request), method, path, body string) *http.Request {
	r := g.request(method, path, key, body)
	r.RemoteAddr = "198.51.100.200:1"
	if who != nil {
		who(r)
	}
	return r
}

func (g *rig) viaChat(key string, who func(*http.Request), body string) answer {
	g.t.Helper()
	return g.do(g.via(key, who, http.MethodPost, chatPath, body))
}

func (g *rig) visitorOf(t *testing.T, key string, who func(*http.Request)) shownIdentity {
	t.Helper()
	return g.whoIs(t, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+key)
		who(r)
	})
}

// Each visitor of each backend is somebody of their own; whichever way the backend proves
// itself, the same.
func TestVisitorsAreApart(t *testing.T) {
	t.Parallel()
	g := newRig(t, withBackends)
	const addr = "203.0.113.7"
	seen := map[string]string{}
	for _, test := range []struct {
		name, key, prefix string
		who               func(*http.Request)
		kind, tier        string
	}{
		{"an address", webSecret, "net#web#", byAddress(addr), "anonymous", "anonymous"},
		{"of another backend", shopSecret, "net#shop#", byAddress(addr), "anonymous", "anonymous"},
		{"another network", webSecret, "net#web#", byAddress("203.0.112.7"), "anonymous", "anonymous"},
		{"an id", webSecret, "net#web#", byID("123"), "anonymous", "anonymous"},
		{"an id, named anonymous", webSecret, "net#web#", vouched("1234", "anonymous"), "anonymous", "anonymous"},
		{"an id of another backend", shopSecret, "net#shop#", byID("123"), "anonymous", "anonymous"},
		{"an id that looks like an address", webSecret, "net#web#", byID(addr), "anonymous", "anonymous"},
		{"a user", webSecret, "user#web#", vouched("123", "user"), "user", "user"},
		{"a subscriber", webSecret, "user#web#", vouched("124", "pro"), "user", "pro"},
	} {
		got := g.visitorOf(t, test.key, test.who)
		check.That(t, got.Kind == test.kind && got.Tier == test.tier && strings.HasPrefix(got.ID, test.prefix) && seen[got.ID] == "",
			"%s is %+v, as is %q", test.name, got, seen[got.ID])
		if _, _, ok := keys.Identity(got.ID); !ok || strings.Contains(got.ID, "123") || strings.Contains(got.ID, addr) {
			t.Errorf("%s has the key %q", test.name, got.ID)
		}
		seen[got.ID] = test.name
		if test.key == webSecret {
			for name, key := range map[string]string{"old secret": oldSecret, "token": g.token("web-server", "pro")} {
				check.Equal(t, g.visitorOf(t, key, test.who), got, "%s, by the %s", test.name, name)
			}
		}
	}
	// Nor are they who calls for themselves.
	for name, got := range map[string]shownIdentity{
		"the address itself": g.whoIs(t, func(r *http.Request) { r.RemoteAddr = addr + ":1" }),
		"user 123":           g.visitorOf(t, g.token("123", ""), byID("123")), // with a token of their own, whoever sends it
	} {
		check.That(t, seen[got.ID] == "" && !strings.Contains(got.ID, "web"), "%s is %+v, as %s", name, got, seen[got.ID])
	}
	// Addresses of one network are one, agents are its clients, and both last a day; the id
	// of somebody with an account stays.
	g.freeze(0)
	network, id, user := g.visitorOf(t, webSecret, byAddress(addr)), g.visitorOf(t, webSecret, byID("123")), g.visitorOf(t, webSecret, vouched("123", "user"))
	if got := g.visitorOf(t, webSecret, known(visitorAddress, " 203.0.113.99:80", visitorAgent, "another")); got != network {
		t.Errorf("%+v is not of the network %+v", got, network)
	}
	g.freeze(24 * time.Hour)
	check.That(t, network != g.visitorOf(t, webSecret, byAddress(addr)) && id != g.visitorOf(t, webSecret, byID("123")) && user == g.visitorOf(t, webSecret, vouched("123", "user")),
		"a day later")
}

func TestVisitorHeaders(t *testing.T) {
	t.Parallel()
	g := newRig(t, withBackends)
	for _, test := range []struct {
		name, key string
		who       func(*http.Request)
		param     string // of the refusal
		said      string // in it
	}{
		{"nobody", webSecret, known(), visitorAddress, backendsPage},
		{"nobody, in empty headers", webSecret, known(visitorAddress, "", visitorID, "", visitorTier, ""), visitorAddress, visitorID},
		{"an agent alone", webSecret, known(visitorAgent, "Mozilla/5.0"), visitorAddress, "who the visitor is"},
		{"both", webSecret, known(visitorAddress, "203.0.113.7", visitorID, "1"), visitorID, "left out"},
		{"what a proxy makes of it", webSecret, known(visitorAddress, "203.0.113.7, 10.0.0.1"), visitorAddress, "your own proxy"},
		{"no address", webSecret, known(visitorAddress, "unknown"), visitorAddress, "one IP address"},
		{"a network", webSecret, known(visitorAddress, "203.0.113.0/24"), visitorAddress, "one IP address"},
		{"an address twice", webSecret, known(visitorAddress, "203.0.113.7", visitorAddress, "203.0.113.7"), visitorAddress, "once"},
		{"agents", webSecret, known(visitorAddress, "203.0.113.7", visitorAgent, "a", visitorAgent, "b"), visitorAgent, "once"},
		{"an id with a space", webSecret, byID("ann lee"), visitorID, "hash"},
		{"an id beyond ASCII", webSecret, byID("\u00e4nn"), visitorID, "hash"},
		{"a long id", webSecret, byID(strings.Repeat("a", maxVisitorID+1)), visitorID, "256"},
		{"ids", webSecret, known(visitorID, "a", visitorID, "b"), visitorID, "once"},
		{"a tier that there is not", webSecret, vouched("1", "gold"), visitorTier, "anonymous, user, pro"},
		{"a tier in capitals", webSecret, vouched("1", "Pro"), visitorTier, "vouch"},
		{"a tier beyond its own", shopSecret, vouched("1", "user"), visitorTier, "one of anonymous, for which"},
		{"tiers", webSecret, known(visitorID, "1", visitorTier, "user", visitorTier, "pro"), visitorTier, "once"},
		{"a tier for an address", webSecret, known(visitorAddress, "203.0.113.7", visitorTier, "user"), visitorTier, visitorID},
	} {
		for _, route := range [][3]string{{"POST", chatPath, chatBody("docqa", "Hi")}, {"GET", "/v1/limits"}, {"GET", "/v1/challenge"}} {
			a := g.do(g.via(test.key, test.who, route[0], route[1], route[2]))
			g.refused(t, a, openai.InvalidValue, test.param)
			message := g.wireError(a).Message
			check.That(t, strings.Contains(message, test.said), "%s: %q", test.name, message)
		}
	}
	for name, who := range map[string]func(*http.Request){
		"IPv6": known(visitorAddress, "2001:db8::1"), "with a port": known(visitorAddress, "[2001:db8::1]:443"), "without agent": known(visitorAddress, "203.0.113.7"),
		"a long agent": known(visitorAddress, "203.0.113.7", visitorAgent, strings.Repeat("a", 5000)), "the longest id": byID(strings.Repeat("a", maxVisitorID)),
		"an e-mail address": byID("ann@example.com"), "a #": byID("a#b"), "an empty header beside it": known(visitorAddress, "", visitorID, "1"),
	} {
		a := g.viaChat(webSecret, who, chatBody("docqa", "Hi"))
		check.That(t, a.status == http.StatusOK, "%s: %d %s", name, a.status, a.body)
	}
}

// What is meant as a backend's is a backend's or nobody's: 401, and never an anonymous
// call. A page is no backend.
func TestWhoIsNoBackend(t *testing.T) {
	t.Parallel()
	g := newRig(t, withBackends)
	for name, r := range map[string]func(method, path, body string) *http.Request{
		"a wrong secret":                 func(m, p, b string) *http.Request { return g.via(webSecret+"x", byID("1"), m, p, b) },
		"part of one":                    func(m, p, b string) *http.Request { return g.via(webSecret[1:], byID("1"), m, p, b) },
		"a wrong secret, and no visitor": func(m, p, b string) *http.Request { return g.via("a-key-that-is-none", nil, m, p, b) },
		"no secret":                      func(m, p, b string) *http.Request { return g.via("", byID("1"), m, p, b) },
		"an empty one":                   func(m, p, b string) *http.Request { return g.via(" ", byAddress("203.0.113.7"), m, p, b) },
		"two": func(m, p, b string) *http.Request {
			return g.via(webSecret, func(r *http.Request) { byID("1")(r); r.Header.Add("Authorization", "Bearer "+webSecret) }, m, p, b)
		},
		"another scheme": func(m, p, b string) *http.Request {
			return g.via("", func(r *http.Request) { byID("1")(r); r.Header.Set("Authorization", "Basic "+webSecret) }, m, p, b)
		},
		"a forged token": func(m, p, b string) *http.Request { return g.via(g.token("web-server", "")+"x", byID("1"), m, p, b) },
	} {
		for _, route := range [][3]string{{"POST", chatPath, chatBody("docqa", "Hi")}, {"GET", "/v1/limits"}, {"GET", "/v1/models"}, {"GET", "/v1/challenge"}, {"POST", "/v1/challenge", `{"payload":"x"}`}} {
			a := g.do(r(route[0], route[1], route[2]))
			if a.status != http.StatusUnauthorized || !strings.Contains(name, "no visitor") && !strings.Contains(a.body, backendsPage) {
				t.Errorf("%s, %s: %d %s", name, route[1], a.status, a.body)
			}
		}
	}
	// A user's token names its user, and does not open the challenge of somebody else.
	g.refused(t, g.do(g.via(g.token("123", ""), byID("1"), http.MethodGet, "/v1/challenge", "")), openai.InvalidToken, "")
	for _, key := range []string{webSecret, g.token("web-server", "")} {
		for _, path := range []string{"/v1/limits", "/v1/challenge"} {
			a := g.do(g.via(key, func(r *http.Request) { byID("1")(r); r.Header.Set("Origin", appOrigin) }, http.MethodGet, path, ""))
			g.refused(t, a, openai.OriginNotAllowed, "")
			readable(t, a, appOrigin)
		}
	}
	g.untouched(t)
	check.That(t, strings.Contains(g.log.String(), `"backend not proven"`), "nothing in the log says why")
	for _, secret := range []string{webSecret, oldSecret, shopSecret} {
		check.That(t, !strings.Contains(g.log.String(), secret), "a secret is in the log")
	}
	// Without backends in the policy the headers are as any others.
	plain := newRig(t)
	check.Equal(t, plain.whoIs(t, byID("1")), plain.whoIs(t, func(*http.Request) {}), `plain.whoIs(t, byID("1"))`)
	plain.refused(t, plain.viaChat(webSecret, byID("1"), chatBody("docqa", "Hi")), openai.InvalidToken, "")
}

// All visitors of a backend spend no more than its pool, whatever ids it makes up; and
// nobody else is locked by that.
func TestABackendsBound(t *testing.T) {
	t.Parallel()
	g := newRig(t, withBackends)
	g.freeze(0)
	long := strings.Replace(question, "docqa", "open", 1)
	codes := map[string]int{}
	for i := range 400 {
		who := []func(*http.Request){byID(fmt.Sprint(i)), byAddress(fmt.Sprintf("198.18.%d.7", i%250)), vouched(fmt.Sprint(i), "pro")}[i%3]
		codes[g.codeOf(g.viaChat([]string{webSecret, oldSecret}[i%2], who, long))]++
	}
	_, usage := g.upstream.Totals()
	cost := testPrices.Cost(usage)
	check.That(t, cost.MicroDollars() <= 100_000 && cost.MicroDollars() >= 50_000, "$%s was spent at one instant, a quarter of $0.40 may be", cost)
	check.That(t, codes["spend_ceiling_reached"] != 0 && len(codes) == 2, "answers %v", codes)
	for name, a := range map[string]answer{
		"visitor of another backend": g.viaChat(shopSecret, byID("1"), question), "the same address": g.visit("198.18.1.7:1", "honest", question), "user": g.chat(g.token("ann", ""), question),
	} {
		check.Equal(t, a.status, http.StatusOK, "%s: … %s", name, a.body)
	}
	// A refusal takes nothing from the visitor, and holds nothing of the pools.
	stale := g.viaChat(webSecret, vouched("new", "pro"), long)
	e := g.wireError(stale)
	check.That(t, e.Code == "spend_ceiling_reached" && *e.RetryAfter >= 1, "%+v", e)
	g.freeze(time.Minute)
	if a := g.viaChat(webSecret, vouched("new", "pro"), long); a.status != http.StatusOK {
		t.Errorf("a minute later: %d %s", a.status, a.body)
	}
}

// A visitor has the limits of its tier and no more, by whichever secret and in whichever
// process, while the secret is rotated; and another visitor has theirs.
func TestVisitorsLimitsWhileSecretsRotate(t *testing.T) {
	t.Parallel()
	g := newRig(t, withBackends, limitsOf("requests: {capacity: 5, per: 1h}"))
	before := *g.policy
	after := before // the owner has made the second secret the first, and the first is gone
	web := *before.Backends["web"]
	web.Secrets = web.Secrets[:1]
	after.Backends = map[string]*policy.Backend{"web": &web, "shop": before.Backends["shop"]}
	g.policy = &after
	processes := []*Handler{g.handler, g.process(engine.Client(enginetest.URL()))}
	var together sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for i := range 40 {
		together.Go(func() {
			on := rig{t: g.t, handler: processes[i/2%2]}
			code := on.codeOf(on.do(g.via([]string{webSecret, oldSecret}[i%2], vouched("ann", "user"), http.MethodPost, chatPath, chatBody("docqa", "Hi"))))
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	together.Wait()
	check.That(t, codes[""] == 5 && codes["invalid_token"] == 10 && codes["rate_limit_exceeded"] == 25, "answers %v", codes)
	for name, who := range map[string]string{"another visitor": "bob", "Ann of shop": "ann"} {
		key, tier := webSecret, "user"
		if name != "another visitor" {
			key, tier = shopSecret, "anonymous"
		}
		a := g.viaChat(key, vouched(who, tier), chatBody("docqa", "Hi"))
		check.That(t, a.status == http.StatusOK, "%s: %d %s", name, a.status, a.body)
	}
	if a := g.chat(g.token("ann", ""), chatBody("docqa", "Hi")); a.status != http.StatusOK {
		t.Errorf("Ann herself: %d %s", a.status, a.body)
	}
}

// The visitor's browser solves, the backend hands on; what it gets for it is the
// visitor's alone.
func TestChallengeThroughABackend(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]func(*http.Request){"by address": byAddress("203.0.113.7"), "by id": byID("123")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, withBackends)
			g.freeze(0)
			code := ""
			for range 30 {
				if code = g.codeOf(g.viaChat(webSecret, who, question)); code != "" {
					break
				}
			}
			check.Must(t, code == "challenge_required", "the limits end in %q", code)
			hand := func(key string, who func(*http.Request), method, body string) answer {
				return g.do(g.via(key, who, method, "/v1/challenge", body))
			}
			payload := widget.Solve(t, []byte(hand(webSecret, who, http.MethodGet, "").body))
			others := map[string]struct {
				key string
				who func(*http.Request)
			}{
				"another id": {webSecret, byID("124")}, "another network": {webSecret, byAddress("203.0.112.7")},
				"another backend": {shopSecret, who}, "the server itself": {"", nil},
			}
			for name, o := range others {
				check.Equal(t, g.codeOf(hand(o.key, o.who, http.MethodPost, `{"payload":"`+payload+`"}`)), "challenge_failed", "the solution is %s's", name)
			}
			var got struct{ Pass string }
			if a := hand(oldSecret, who, http.MethodPost, `{"payload":"`+payload+`"}`); json.Unmarshal([]byte(a.body), &got) != nil || got.Pass == "" {
				t.Fatalf("%d %s", a.status, a.body)
			}
			with := func(who func(*http.Request)) func(*http.Request) {
				return func(r *http.Request) {
					r.Header.Set("X-Challenge-Pass", got.Pass)
					if who != nil {
						who(r)
					}
				}
			}
			if a := g.viaChat(webSecret, with(who), question); a.status != http.StatusOK {
				t.Errorf("with the pass: %d %s", a.status, a.body)
			}
			id := g.visitorOf(t, webSecret, with(who)).ID
			check.That(t, strings.HasPrefix(id, "pass#web#"), "the pass is kept as %s", id)
			for name, o := range others {
				check.Equal(t, g.codeOf(g.viaChat(o.key, with(o.who), question)), "challenge_failed", "the pass is %s's", name)
			}
			// An account is never challenged.
			g.setFuse("challenge", g.now().Add(time.Hour))
			g.freeze(time.Minute)
			check.Equal(t, g.codeOf(g.viaChat(webSecret, byID("fresh"), question)), "challenge_required", "under the fuse")
			if a := g.viaChat(webSecret, vouched("fresh", "user"), question); a.status != http.StatusOK {
				t.Errorf("an account under the fuse: %d %s", a.status, a.body)
			}
		})
	}
}

// A server without a backend of its own is told, with its challenge, what it could be;
// browsers and backends are not.
func TestServersAreToldOfBackends(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege, func(yaml string) string { return strings.Replace(yaml, "challenge_at: 0.5", "challenge_at: 0.01", 1) })
	for name, test := range map[string]struct {
		edit func(*http.Request)
		told bool
	}{
		"Python": {func(r *http.Request) {
			r.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"OpenAI/Python 3.0"}}
		}, true},
		"Node": {func(r *http.Request) {
			r.Header.Set("User-Agent", "ai-sdk/openai-compatible")
			r.Header.Set("Accept-Language", "*")
		}, true},
		"Chrome": {func(*http.Request) {}, false},
	} {
		r := g.visitRequest("203.0.113.7:1", "Mozilla/5.0", question)
		test.edit(r)
		a := g.do(r)
		g.refused(t, a, openai.ChallengeRequired, "")
		message := g.wireError(a).Message
		check.That(t, strings.Contains(message, "trusted backend") == test.told && strings.Contains(message, backendsPage) == test.told, "%s: %q", name, message)
	}
}

// The ledger and the log know a visitor by the very key that support can name, and a call
// takes no more of the store than anybody else's.
func TestVisitorsInTheBooks(t *testing.T) {
	t.Parallel()
	g := newRig(t, withBackends, func(yaml string) string { return strings.Replace(yaml, `web: {usd: "0.40"`, `web: {usd: "20.00"`, 1) })
	g.freeze(0)
	const calls = 40
	writes := func(call func() answer) (n int64) {
		for range 2 { // only the second time counts: the process has leases then
			before := g.sends.Load()
			for range calls {
				a := call()
				check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
			}
			n = g.sends.Load() - before
		}
		return n
	}
	small := chatBody("docqa", "Hi")
	user := g.token("ann", "pro")
	visitor := writes(func() answer { return g.viaChat(webSecret, vouched("ann", "pro"), small) })
	own := writes(func() answer { return g.chat(user, small) })
	if t.Logf("%d calls: %d writes for a visitor, %d for a user", calls, visitor, own); visitor > 2*calls+calls/4 {
		t.Errorf("a visitor's calls take %d writes, a user's %d; want little more than a reserve and a settle for each", visitor, own)
	}
	id := g.visitorOf(t, webSecret, vouched("ann", "pro")).ID
	events := g.spendEvents()
	i := slices.IndexFunc(events, func(e spendEvent) bool { return e.Identity == id })
	check.That(t, i == 0 && events[0].Tier == "pro", "the first event is of %+v, not of %s", events[0], id)
	check.That(t, strings.Contains(string(g.logged("request")[0]), id), "%s is not in the log", id)
	check.That(t, !strings.Contains(g.log.String(), webSecret), "the secret is in the log")
}

// Secrets that can be guessed, that no header carries or that two backends share do not
// start.
func TestBackendSecretsThatDoNotStart(t *testing.T) {
	t.Parallel()
	g := newRig(t, withBackends)
	for name, secrets := range map[string][2]string{"short": {"fifteen-of-them", shopSecret}, "spaces": {"a secret of many words", shopSecret}, "line end": {webSecret + "\n", shopSecret}, "shared": {shopSecret, shopSecret}} {
		_, err := Build(context.Background(), Parts{
			Policy: g.policy, DynamoDB: engine.Client(enginetest.URL()), Bucket: g.bucket, Now: g.now, Log: g.handler.Log,
			Secret: func(ctx context.Context, s policy.Secret) (string, error) {
				switch s.Env {
				case "BACKEND_NEW":
					return secrets[0], nil
				case "BACKEND_SHOP":
					return secrets[1], nil
				}
				return secretOf(ctx, s)
			},
		})
		check.That(t, err != nil && strings.Contains(err.Error(), "backend ") && !strings.Contains(err.Error(), secrets[0]), "%s: %v", name, err)
	}
}
