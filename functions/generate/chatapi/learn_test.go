package chatapi

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// tokenWith makes a token with a verified address.
func (g *rig) tokenWith(sub, email string) string {
	g.t.Helper()
	token, err := g.issuer.Token(issuer.Claims{Subject: sub, Email: email, EmailVerified: true, TTL: time.Hour})
	check.OK(g.t, err)
	return token
}

// wantFound wants support to find the user of an address.
func (g *rig) wantFound(email string, want ...string) {
	g.t.Helper()
	users, err := emails.New(engine.Client(enginetest.URL()), g.bucket.Table, []byte(testSecret), g.now)
	check.OK(g.t, err)
	if got, err := users.Find(g.t.Context(), email); err != nil || !slices.Equal(got, want) {
		g.t.Errorf("%s finds %v, %v, want %v", email, got, err, want)
	}
}

const askDocqa = `{"model":"docqa","messages":[{"role":"user","content":"Hi"}]}`

// Whoever is denied is whom support must find, whatever denied the call. A flood of
// denials writes once.
func TestAddressIsLearnedFromADenial(t *testing.T) {
	t.Parallel()
	for name, deny := range map[string]struct {
		status int
		policy func(string) string
		before func(*rig)
		body   string
	}{
		"a limit": {http.StatusTooManyRequests, func(yaml string) string {
			return strings.Replace(yaml, "requests: {capacity: 60, per: 1m}", "requests: {capacity: 1, per: 1h}", 1)
		}, func(g *rig) { g.chat(g.token("ann", ""), askDocqa) }, askDocqa},
		"the fuse": {http.StatusServiceUnavailable, nil, func(g *rig) {
			check.OK(g.t, fuse.NewWriter(engine.Client(enginetest.URL()), g.bucket.Table, g.now).Set(g.t.Context(), fuse.Setting{State: fuse.Open, SetBy: "ops"}))
		}, askDocqa},
		"a ceiling": {http.StatusServiceUnavailable, func(yaml string) string {
			return yaml + "pools: {all: {usd: \"0.12\", per: 1h}}\n"
		}, func(g *rig) {
			if reserved, _, err := g.handler.admission.Pools["all"].Reserve(g.t.Context(), g.handler.admission.Pools["all"].Burst()); reserved == nil {
				g.t.Fatal(err)
			}
		}, askDocqa},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, func(yaml string) string {
				if deny.policy == nil {
					return yaml
				}
				return deny.policy(yaml)
			})
			deny.before(g)
			writes := 0
			g.net.Plan = func(_ string, body []byte) faults.Fault {
				if bytes.Contains(body, []byte(`"email#`)) {
					writes++
				}
				return faults.None
			}
			token := g.tokenWith("ann", "ann@example.com")
			for range 20 {
				a := g.chat(token, deny.body)
				check.Must(t, a.status == deny.status, "%d %s", a.status, a.body)
			}
			check.Equal(t, writes, 1, "writes of an address")
			g.wantFound("ann@example.com", "ann")
		})
	}
}

// What fails before the limits counts nothing and tells nothing.
func TestAddressIsNotLearnedFromBadInput(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	token := g.tokenWith("ann", "ann@example.com")
	sends := g.sends.Load()
	a := g.chat(token, `{"model":"docqa","n":20,"messages":[{"role":"user","content":"Hi"}]}`)
	check.Must(t, a.status == http.StatusBadRequest, "%d %s", a.status, a.body)
	check.That(t, g.sends.Load() == sends, "the store was asked")
	g.wantFound("ann@example.com")
}

// An admitted call learns after its settle: not one round trip comes before the
// provider is asked.
func TestAddressIsLearnedAfterTheCall(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	add := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	s := setup{upstream: upstream.Options{}, model: func(upstream http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			add("call")
			upstream.ServeHTTP(w, r)
		})
	}}
	g := s.newRig(t)
	g.net.Plan = func(_ string, body []byte) faults.Fault {
		what := "bucket"
		if bytes.Contains(body, []byte(`"email#`)) {
			what = "address"
		}
		add(what)
		return faults.None
	}
	a := g.chat(g.tokenWith("ann", "ann@example.com"), askDocqa)
	check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
	mu.Lock()
	defer mu.Unlock()
	want := []string{"bucket", "call", "bucket", "address"}
	check.That(t, slices.Equal(order, want), "%v, want %v", order, want)
}

// A store that does not answer is not asked for the address as well: the refusal comes
// in its time.
func TestAddressIsNotLearnedWithoutAStore(t *testing.T) {
	t.Parallel()
	g := setup{bucket: bucket.Options{AttemptTimeout: 100 * time.Millisecond, ReserveTimeout: 300 * time.Millisecond, SettleTimeout: 300 * time.Millisecond}}.newRig(t)
	var learned atomic.Bool
	g.net.Plan = func(_ string, body []byte) faults.Fault {
		if bytes.Contains(body, []byte(`"email#`)) {
			learned.Store(true)
		}
		return faults.LostRequest
	}
	a := g.chat(g.tokenWith("ann", "ann@example.com"), askDocqa)
	check.Must(t, a.status == http.StatusServiceUnavailable, "%d %s", a.status, a.body)
	check.That(t, !learned.Load(), "a store that is down was asked to learn an address")
}
