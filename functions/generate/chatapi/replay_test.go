package chatapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// writes counts the writes among what is sent to the store.
type writes struct {
	mu sync.Mutex
	n  int
}

func (w *writes) plan(target string, _ []byte) faults.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !strings.HasSuffix(target, ".GetItem") {
		w.n++
	}
	return faults.None
}

func (w *writes) since(before int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n - before
}

// newProcess makes another process on the rig's table, by the same network.
func (g *rig) newProcess() {
	g.t.Helper()
	db, _ := enginetest.Table(g.t, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: g.net} })
	g.handler = g.process(db)
}

// Who sends a used solution again and again costs at most a write each time, in as many
// processes as there are, and none where it is known.
func TestReplayIsCheap(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	w := &writes{}
	g.net.Plan = w.plan
	const addr = "203.0.113.7:1"
	body := `{"payload":"` + g.payload(addr) + `"}`
	a := g.post(addr, body)
	check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
	solving := w.since(0)
	for range 200 {
		code := g.codeOf(g.post(addr, body))
		check.Must(t, code == "challenge_failed", "%q", code)
	}
	check.Equal(t, w.since(solving), 0, "200 replays in one process made … writes")
	for range 20 {
		g.newProcess()
		for range 10 {
			code := g.codeOf(g.post(addr, body))
			check.Must(t, code == "challenge_failed", "%q", code)
		}
	}
	if n := w.since(solving); n > 20 {
		t.Errorf("replays in 20 processes made %d writes", n)
	}
	check.That(t, solving <= 3, "a pass took %d writes", solving)
}

// A network without passes left is refused before anything is taken: the same solution
// gets its pass when there is one.
func TestDenialOfPassesTakesNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege, func(yaml string) string {
		return strings.Replace(yaml, "passes: {capacity: 30, per: 1h,", "passes: {capacity: 2, per: 2m,", 1)
	})
	g.freeze(0)
	w := &writes{}
	g.net.Plan = w.plan
	const addr = "203.0.113.7:1"
	g.solve(addr)
	g.solve(addr)
	body := `{"payload":"` + g.payload(addr) + `"}`
	before := w.since(0)
	for range 5 {
		g.newProcess()
		a := g.post(addr, body)
		if e := g.wireError(a); a.status != http.StatusTooManyRequests || e.Limit != "passes" || *e.RetryAfter != 60 || a.header.Get("Retry-After") != "60" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	check.Equal(t, w.since(before), 0, "5 denials made … writes")
	g.freeze(time.Minute)
	if a := g.post(addr, body); a.status != http.StatusOK {
		t.Errorf("after the wait: %d %s", a.status, a.body)
	}
	if a := g.post(addr, body); g.codeOf(a) != "challenge_failed" {
		t.Errorf("again: %d %s", a.status, a.body)
	}
}

// Whatever the store does between the steps: a solution makes at most one pass, and each
// pass is one of the network's.
func TestNoPassForNothing(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"used#", "net#"} {
		for fault, f := range map[string]faults.Fault{"lost reply": faults.LostReply, "error reply": faults.ErrorReply, "late request": faults.LateRequest} {
			for _, from := range []int{1, 2} { // the first send to it, or the second
				t.Run(fmt.Sprintf("%s/%s/from %d", key, fault, from), func(t *testing.T) {
					t.Parallel()
					s := setup{}
					s.bucket.AttemptTimeout, s.bucket.ReserveTimeout = 300*time.Millisecond, 600*time.Millisecond
					g := s.newRig(t, siege)
					g.freeze(0)
					const addr = "203.0.113.7:1"
					body := `{"payload":"` + g.payload(addr) + `"}`
					n := 0
					fail := flapping(func(_ int, k string) faults.Fault {
						if k == key {
							n++
							if n >= from {
								return f
							}
						}
						return faults.None
					})
					g.net.Plan = func(target string, body []byte) faults.Fault {
						if strings.HasSuffix(target, ".GetItem") {
							return faults.None
						}
						return fail(target, body)
					}
					passes := 0
					if g.post(addr, body).status == http.StatusOK {
						passes++
					}
					g.net.Plan = nil
					check.OK(t, g.net.Deliver())
					for range 3 {
						if g.post(addr, body).status == http.StatusOK {
							passes++
						}
						g.newProcess()
					}
					check.That(t, passes <= 1, "one solution made %d passes", passes)
					left := g.passesLeft(addr)
					check.That(t, left <= 30-passes, "%d passes are left of 30 after %d were given", left, passes)
				})
			}
		}
	}
}

// passesLeft is how many passes a network may still obtain, by the store.
func (g *rig) passesLeft(addr string) int {
	g.t.Helper()
	r := g.request(http.MethodGet, "/v1/challenge", "", "")
	r.RemoteAddr = addr
	at, apiErr := g.handler.locate(r)
	if apiErr != nil {
		g.t.Fatal(apiErr.Message)
	}
	state, err := g.handler.admission.Buckets.Peek(g.t.Context(), "net#"+at.networks[0])
	check.OK(g.t, err)
	return int(state.Limit(limits.OfPasses(g.policy.Tiers["anonymous"].Passes).Limit).Remaining)
}
