package chatapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// thirdParty verifies in place of the rig's ALTCHA, and counts. It takes solutions that
// begin with "solved".
func (g *rig) thirdParty() *atomic.Int64 {
	g.t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.HasPrefix(r.FormValue("response"), "solved") {
			_ = json.NewEncoder(w).Encode(map[string]any{"success": true, "challenge_ts": g.now().UTC().Format(time.RFC3339)})
			return
		}
		_, _ = io.WriteString(w, `{"success":false,"error-codes":["invalid-input-response"]}`)
	}))
	g.t.Cleanup(server.Close)
	verifier, err := challenge.NewSiteverify(challenge.SiteverifyConfig{Kind: "turnstile", Secret: "a-real-secret", URL: server.URL, Now: g.now})
	check.OK(g.t, err)
	g.handler.Challenges, g.handler.Altcha = verifier, nil
	return &asked
}

// postAs sends a solution from a browser.
func (g *rig) postAs(addr, agent, payload string) answer {
	g.t.Helper()
	r := g.request(http.MethodPost, "/v1/challenge", "", `{"payload":"`+payload+`"}`)
	r.RemoteAddr = addr
	r.Header.Set("User-Agent", agent)
	return g.do(r)
}

// Whoever sends nonsense, in whatever way, does not make us flood a third party, and
// those beside them get their passes.
func TestSiteverifyOfNeighbours(t *testing.T) {
	t.Parallel()
	const script, sameAddress, sameNetwork = "203.0.113.66:1", "203.0.113.66:2", "203.0.113.7:1"
	for name, tt := range map[string]struct {
		from   func(i int) (addr, agent string)
		most   int64    // calls to the third party in a minute
		honest []string // who still gets a pass
	}{
		"one browser":         {func(int) (string, string) { return script, "curl" }, 20, []string{sameAddress, sameNetwork}},
		"an agent for each":   {func(i int) (string, string) { return script, fmt.Sprintf("script/%d", i) }, 60, []string{sameNetwork}},
		"an address for each": {func(i int) (string, string) { return fmt.Sprintf("203.0.113.%d:1", 100+i%100), "curl" }, 240, nil},
		"addresses of an IPv6 /64": {func(i int) (string, string) {
			return fmt.Sprintf("[2001:db8:1:2::%x]:1", i+1), fmt.Sprintf("script/%d", i)
		}, 60, []string{"[2001:db8:1:3::1]:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, siege)
			g.freeze(0)
			asked := g.thirdParty()
			refused := map[string]int{}
			for i := range 500 {
				addr, agent := tt.from(i)
				refused[g.codeOf(g.postAs(addr, agent, fmt.Sprintf("nonsense%d", i)))]++
			}
			if n := asked.Load(); n > tt.most || n < tt.most/2 || refused["challenge_failed"] != int(n) || refused["rate_limit_exceeded"] != 500-int(n) {
				t.Errorf("the third party was asked %d times, at most %d are right: %v", n, tt.most, refused)
			}
			for i, addr := range tt.honest {
				a := g.postAs(addr, "a browser", fmt.Sprintf("solved%d", i))
				check.That(t, a.status == http.StatusOK, "%s: %d %s", addr, a.status, a.body)
			}
			g.freeze(time.Minute) // and it is over soon
			if a := g.postAs(script, "curl", "solved"); a.status != http.StatusOK {
				t.Errorf("later: %d %s", a.status, a.body)
			}
		})
	}
}

// What a third party accepts is no nonsense, and neither is it that it cannot be asked.
func TestSiteverifyOfTheHonest(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege, func(yaml string) string {
		return strings.Replace(yaml, "passes: {capacity: 30,", "passes: {capacity: 100,", 1)
	})
	g.freeze(0)
	g.thirdParty()
	for i := range 40 {
		a := g.postAs("203.0.113.7:1", "a browser", fmt.Sprintf("solved%d", i))
		check.Must(t, a.status == http.StatusOK, "solution %d: %d %s", i, a.status, a.body)
	}
	var err error
	g.handler.Challenges, err = challenge.NewSiteverify(challenge.SiteverifyConfig{Kind: "turnstile", Secret: "a-real-secret", URL: "http://127.0.0.1:1", Now: g.now})
	check.OK(t, err)
	for range 25 {
		a := g.postAs("198.51.100.1:1", "a browser", "solved")
		check.Must(t, g.codeOf(a) == "challenge_unavailable", "%d %s", a.status, a.body)
	}
}

// A third party that verifies is asked at most 20 times a minute for a browser that posts
// nonsense: who does so must not make us flood it.
func TestSiteverifyIsAskedSeldom(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	asked := g.thirdParty()

	const addr = "203.0.113.7:1"
	codes := map[string]int{}
	var last answer
	for range 25 {
		last = g.post(addr, `{"payload":"nonsense"}`)
		codes[g.codeOf(last)]++
	}
	check.That(t, asked.Load() == 20 && codes["challenge_failed"] == 20 && codes["rate_limit_exceeded"] == 5, "asked %d times, answers %v", asked.Load(), codes)
	e := g.wireError(last)
	check.That(t, e.Limit == "siteverify" && last.header.Get("Retry-After") != "", "%+v", e)
	// Other networks are not held up, and this one not for ever.
	g.post("198.51.100.1:1", `{"payload":"nonsense"}`)
	g.freeze(time.Minute)
	g.post(addr, `{"payload":"nonsense"}`)
	check.Equal(t, asked.Load(), 22, "asked … times")
	r := g.request(http.MethodGet, "/v1/challenge", "", "")
	a := g.do(r)
	check.That(t, a.status == http.StatusOK && a.body == `{"kind":"altcha","site_key":""}`, "%d %s", a.status, a.body)
}
