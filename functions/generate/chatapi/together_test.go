package chatapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// gate is a provider that answers a call when the test says so. A call is known by
// the model's input: its last message.
type gate struct {
	*rig
	arrived chan struct{}
	release map[string]chan http.HandlerFunc
}

// prompts are those of n calls of a user.
func prompts(user string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("I am welder %d of %s.", i, user)
	}
	return list
}

func newGate(t *testing.T, all []string, edit ...func(string) string) *gate {
	g := &gate{arrived: make(chan struct{}, len(all)), release: map[string]chan http.HandlerFunc{}}
	for _, prompt := range all {
		g.release[prompt] = make(chan http.HandlerFunc, 1)
	}
	g.rig = setup{model: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var req struct {
				Messages []struct{ Content string }
			}
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Messages) == 0 {
				panic(http.ErrAbortHandler)
			}
			answer := g.release[req.Messages[len(req.Messages)-1].Content]
			g.arrived <- struct{}{}
			(<-answer)(w, r)
		})
	}}.newRig(t, edit...)
	g.freeze(0)
	return g
}

// together makes calls of one user that are all open at once, lets them end in an
// order, each after a pause, and gives their answers in that order.
func (g *gate) together(token string, calls []string, order []int, pause time.Duration, answers func(i int) http.HandlerFunc) []answer {
	g.t.Helper()
	ended := make([]chan answer, len(calls))
	for i, prompt := range calls {
		ended[i] = make(chan answer, 1)
		go func() { ended[i] <- g.chat(token, cvCall(prompt, i%2 == 1)) }()
		await(g.t, g.arrived, "the call arrives") // in this order
	}
	var list []answer
	for _, i := range order {
		g.freeze(pause)
		g.release[calls[i]] <- answers(i)
		select {
		case a := <-ended[i]:
			list = append(list, a)
		case <-time.After(20 * time.Second):
			g.t.Fatalf("call %d does not end", i)
		}
	}
	return list
}

// permutations gives all orders of n calls, or of many some at random.
func permutations(n int) [][]int {
	if n > 3 {
		random := rand.New(rand.NewPCG(uint64(n), 1))
		var some [][]int
		for range 8 {
			some = append(some, random.Perm(n))
		}
		return some
	}
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, shorter := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(shorter), at, n-1))
		}
	}
	return all
}

func quotaOfTen(yaml string) string {
	return strings.Replace(yaml, "quota: {capacity: 3, per: 24h}", "quota: {capacity: 10, per: 24h}", 1)
}

// Whatever the order in which calls of one user end that were open together, what they
// take is what they were given.
func TestCallsThatEndInAnyOrder(t *testing.T) {
	t.Parallel()
	failed := func(int) http.HandlerFunc { return modelOf(500, "", `{"error":{}}`, "")(nil).ServeHTTP }
	used := func(i int) price.Usage { return price.Usage{Input: 40, Output: int64(3 + 20*i)} }
	answered := func(i int) http.HandlerFunc {
		u := used(i)
		return answering(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, u.Input, u.Output))(nil).ServeHTTP
	}
	for _, tc := range []struct {
		name    string
		answers func(int) http.HandlerFunc
		gives   bool
		pause   time.Duration
	}{
		{"failed", failed, false, 0},
		{"failed, one by one", failed, false, 100 * time.Millisecond},
		{"answered", answered, true, 0},
		{"answered, one by one", answered, true, 100 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			type scene struct {
				user  string
				calls []string
				order []int
			}
			var scenes []scene
			var all []string
			for _, n := range []int{2, 3, 8} {
				for i, order := range permutations(n) {
					s := scene{user: fmt.Sprintf("%d-%d", n, i), order: order}
					s.calls = prompts(s.user, n)
					all = append(all, s.calls...)
					scenes = append(scenes, s)
				}
			}
			g := newGate(t, all, quotaOfTen)
			for _, s := range scenes {
				token := g.token(s.user, "")
				answers := g.together(token, s.calls, s.order, tc.pause, tc.answers)
				var results, tokens int64
				cost := price.Pico(0)
				for i, a := range answers {
					failed := a.status != http.StatusOK || strings.Contains(a.body, `"error"`)
					check.Must(t, failed != tc.gives, "order %v: %d %s", s.order, a.status, a.body)
					if tc.gives {
						u := used(s.order[i])
						results, tokens, cost = results+1, tokens+u.Total(), cost+testPrices.Cost(u)
					}
				}
				// What was refilled while a call was open may be missing; it is back when as
				// much has been refilled again.
				n := len(s.calls)
				g.freeze(tc.pause * time.Duration(n*(n+1)/2))
				left := g.remaining(token)
				want := 10 - results
				check.That(t, left["cv"] == want, "order %v: %d of the quota remain, want %d", s.order, left["cv"], want)
				refill := ((tc.pause*time.Duration(n*(n+3)/2)).Microseconds()*50_000 + 3_600_000_000 - 1) / 3_600_000_000
				if least := 50_000 - tokens; left["tokens"] < least || left["tokens"] > min(50_000, least+refill) {
					t.Errorf("order %v: %d tokens remain, want %d and at most %d of refill", s.order, left["tokens"], least, refill)
				}
				least, most := 2_000_000-cost.MicroDollars(), int64(2_000_000)
				if tc.pause == 0 {
					most = least
				}
				if tc.gives {
					least -= int64(n) // each is rounded up to a micro-dollar
				}
				check.That(t, left["spend"] >= least && left["spend"] <= most,
					"order %v: %d micro-dollars remain, want %d to %d", s.order, left["spend"], least, most)
				check.Equal(t, g.open("user#"+s.user), 0, "order %v: calls are open", s.order)
			}
		})
	}
}

// quotaShown is what an answer's header says of the quota.
func quotaShown(a answer) string {
	for _, limit := range strings.Split(a.header.Get("RateLimit"), ", ") {
		if rest, ok := strings.CutPrefix(limit, `"cv";r=`); ok {
			left, _, _ := strings.Cut(rest, ";")
			return left
		}
	}
	return ""
}

// wantWholeQuota asserts that all three calls of a quota are to be had at one moment,
// and that each answer counts them right.
func wantWholeQuota(t *testing.T, g *rig, h *Handler, token string) {
	t.Helper()
	g.handler = h
	for _, want := range []string{"2", "1", "0"} {
		a := g.chat(token, cvCall("Hi.", false))
		got := quotaShown(a)
		check.That(t, a.status == http.StatusOK && got == want, "status %d, %s remain, want %s: %s", a.status, got, want, a.body)
	}
	e := g.wireError(g.chat(token, cvCall("Hi.", false)))
	check.That(t, e.Code == string(openai.InsufficientQuota), "the fourth call gets %+v", e)
}

// A process that remembers a used quota learns of a clear without taking anything for it.
func TestQuotaIsWholeAfterAClear(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	token := g.token("123", "")
	for range 2 {
		g.chat(token, cvCall("Hi.", false))
	}
	db, _ := enginetest.Table(t)
	opts := g.bucket
	opts.Now, opts.LongestPeriod = g.now, 48*time.Hour
	support, err := bucket.New(db, opts)
	check.OK(t, err)
	cv := limits.OfFeature(g.policy.Features["cv"], limits.User)[0].Limit
	check.OK(t, support.Clear(context.Background(), "user#123", cv))
	wantWholeQuota(t, g, g.handler, token)
}

// Nor does a process that has not seen the user since yesterday.
func TestQuotaIsWholeTheNextDay(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	for range 2 {
		g.chat(g.token("123", ""), cvCall("Hi.", false))
	}
	g.freeze(24 * time.Hour)
	token, err := g.issuer.Token(issuer.Claims{Subject: "123", TTL: 48 * time.Hour})
	check.OK(t, err)
	db, _ := enginetest.Table(t)
	wantWholeQuota(t, g, g.process(db), token)
}
