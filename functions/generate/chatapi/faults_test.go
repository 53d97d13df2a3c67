package chatapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// A call writes to the store twice: it reserves, and it settles.
const (
	reserving = "reserve"
	settling  = "settle"
)

// fate is what becomes of a call's charge.
type fate int

const (
	notCharged fate = iota
	charged         // settled to what was used
	lost            // its hold stays until it expires: the worst case for tokens and money, nothing for the quota
)

// ground is a rig with faults before the store, on which user#123 has used
// up part of each limit: what is charged or given back once too often shows, and
// is not hidden by a full bucket.
type ground struct {
	*rig
	token string
	start time.Time
	used  admission.Amount
	later int // calls since, that have got through
}

// The store as it is, past the faults.
func (g *ground) store() *dynamodb.Client { return engine.Client(enginetest.URL()) }

// patient is a process that is not put off by a slow machine.
var patient = bucket.Options{AttemptTimeout: 10 * time.Second, ReserveTimeout: 10 * time.Second, SettleTimeout: 10 * time.Second}

func newGround(t *testing.T, opts bucket.Options) *ground {
	t.Helper()
	g := &ground{}
	s := setup{
		bucket: opts,
		model: func(upstream http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				check.That(t, g.number("o") >= 1, "the provider is called without a hold in the store")
				upstream.ServeHTTP(w, r)
			})
		},
	}
	g.rig = s.newRig(t)
	g.freeze(0)
	g.start = g.now()
	g.token = g.rig.token("123", "")
	g.used = admission.Amount{Tokens: 40_000, Money: price.Dollar, Results: 1}
	var charges []bucket.Charge
	var used []int64
	for _, l := range g.offer("cv").Limits {
		n := map[string]int64{"requests": 1, "tokens": g.used.Tokens, "spend": int64(g.used.Money), "cv": g.used.Results}[l.Name]
		charges, used = append(charges, bucket.Charge{Limit: l.Limit, Cost: n}), append(used, n)
	}
	d, err := g.handler.admission.Buckets.Reserve(context.Background(), bucket.Request{
		Key: "user#123", Charges: charges, MaxInFlight: 1, Deadline: g.now().Add(time.Minute),
	})
	check.Must(t, err == nil && d.Reservation != nil, "%+v, %v", d, err)
	check.OK(t, d.Reservation.Settle(context.Background(), used))
	return g
}

// item is what the store has of the user.
func (g *ground) item() map[string]types.AttributeValue {
	g.t.Helper()
	out, err := g.store().GetItem(context.Background(), &dynamodb.GetItemInput{TableName: &g.bucket.Table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "user#123"}}})
	check.OK(g.t, err)
	return out.Item
}

func (g *ground) number(attr string) int64 {
	g.t.Helper()
	n, ok := g.item()[attr].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	check.OK(g.t, err)
	return v
}

// debt is how much of a limit has been charged since the start, refill left out.
func (g *ground) debt(l bucket.Limit) int64 {
	g.t.Helper()
	tat := g.number(fmt.Sprintf("t_%s_%d", l.Name, int64(l.Period.Seconds())))
	// All that is charged here comes to whole microseconds: the least price of a token,
	// 100,000 pico-dollars, to 4,320 of the limit of $2 a day.
	unit := int64(1)
	if l.Name == "spend" {
		unit = 100_000
	}
	return (tat - g.start.UnixMicro()) / (l.Period.Microseconds() / (l.Capacity / unit)) * unit
}

// cost is what the one call under test comes to for tokens and money.
func (g *ground) cost(f fate) admission.Amount {
	g.t.Helper()
	input := g.cvInput()
	switch f {
	case charged:
		billed := g.upstream.Calls()[0].Billed
		return admission.Amount{Tokens: billed.Total(), Money: testPrices.Cost(billed)}
	case lost:
		return admission.Amount{Tokens: input + cvCap, Money: testPrices.WorstCase(input, cvCap)}
	}
	return admission.Amount{}
}

// wantCharged asserts what has been charged, and what is open.
func (g *ground) wantCharged(f fate, open int64) {
	g.t.Helper()
	cost := g.cost(f)
	want := map[string]int64{
		"tokens": g.used.Tokens + cost.Tokens,
		"spend":  int64(g.used.Money + cost.Money),
	}
	for _, call := range g.upstream.Calls()[len(g.upstream.Calls())-g.later:] {
		want["tokens"] += call.Billed.Total()
		want["spend"] += int64(testPrices.Cost(call.Billed))
	}
	for _, l := range limits.OfTier(g.policy.Tiers["user"], limits.User) {
		if w, ok := want[l.Name]; ok && g.debt(l.Limit) != w {
			g.t.Errorf("%s: %d charged, want %d", l.Name, g.debt(l.Limit), w)
		}
	}
	check.Equal(g.t, g.number("o"), open, "calls count as open")
}

// comeBackLater ends a scenario: what is late arrives, every hold expires, and the
// user comes back to another process. Then it asserts how all has ended.
func (g *ground) comeBackLater(f fate) {
	g.t.Helper()
	g.freeze(10 * time.Minute)
	table := g.bucket.Table
	g.bucket = patient
	g.bucket.Table = table
	g.handler = g.process(g.store())
	for range 2 { // the settle of a call clears up what its reserve came across
		a := g.chat(g.token, `{"model":"docqa","messages":[{"role":"user","content":"Hi."}]}`)
		check.Must(g.t, a.status == http.StatusOK, "later: %d %s", a.status, a.body)
		g.later++
	}
	g.wantCharged(f, 0)
	for attr := range g.item() {
		check.That(g.t, !strings.HasPrefix(attr, "h_"), "the hold %s is still there", attr)
	}
	quota := map[fate]int64{notCharged: 2, charged: 1, lost: 2}[f]
	left := g.remaining(g.token)
	check.That(g.t, left["cv"] == quota, "quota: %d remain, want %d", left["cv"], quota)
}

// wantAbandoned asserts how often the ledger was told of a lost call.
func (g *ground) wantAbandoned(want int) {
	g.t.Helper()
	got := 0
	for _, e := range g.spendEvents() {
		if e.Outcome == ledger.Abandoned {
			got++
			worst := g.cost(lost).Money
			check.That(g.t, e.Feature == "cv" && e.Model == "small" && e.Cost == worst && e.Estimated && e.Identity == "user#123",
				"the abandoned call is told of as %+v, want %s of cv", e, worst)
		}
	}
	check.Equal(g.t, got, want, "abandoned calls are told of")
}

// Each write of a call meets each fault, once and for ever.
func TestStoreFaults(t *testing.T) {
	t.Parallel()
	for _, write := range []string{reserving, settling} {
		for _, fault := range faults.All {
			for _, forEver := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/for ever %t", write, fault, forEver), func(t *testing.T) {
					t.Parallel()
					// What hangs or fails for ever is given up soon.
					opts := patient
					if forEver || fault == faults.Hang || fault == faults.HangReply {
						opts.AttemptTimeout = 300 * time.Millisecond
					}
					if forEver && write == reserving {
						opts.ReserveTimeout = 500 * time.Millisecond
					} else if forEver {
						opts.SettleTimeout = 500 * time.Millisecond
					}
					g := newGround(t, opts)
					var sends atomic.Int64
					g.net.Plan = func(string, []byte) faults.Fault {
						phase := reserving
						if len(g.upstream.Calls()) > 0 {
							phase = settling
						}
						if phase != write || sends.Add(1) > 1 && !forEver {
							return faults.None
						}
						return fault
					}
					begun := time.Now()
					a := g.chat(g.token, cvCall("Hi.", false))
					took := time.Since(begun)
					check.That(t, took <= 8*time.Second, "answered after %s", took)
					check.Must(t, sends.Load() != 0, "the fault was never met")
					g.net.Plan = nil

					f, open := charged, int64(0)
					switch {
					case write == reserving && forEver:
						g.wantUnavailable(a)
						f = notCharged
						if fault.Applied() {
							f, open = lost, 1
						}
					case write == settling && forEver && !fault.Applied():
						f, open = lost, 1
						fallthrough
					default:
						check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
						check.Equal(t, len(g.upstream.Calls()), 1, "calls upstream")
					}
					check.OK(t, g.net.Deliver())
					g.wantCharged(f, open)
					g.comeBackLater(f)
					g.wantAbandoned(int(open))
				})
			}
		}
	}
}

// wantUnavailable asserts a 503, and that no unmetered call was made.
func (g *ground) wantUnavailable(a answer) {
	g.t.Helper()
	if e := g.wireError(a); a.status != http.StatusServiceUnavailable || e.Code != string(openai.StoreUnavailable) ||
		a.header.Get("Retry-After") != "1" || a.header.Get("X-Should-Retry") != "true" {
		g.t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	check.Equal(g.t, len(g.upstream.Calls()), 0, "calls upstream")
}

// frozen is a provider that is called and never heard of again, until it is let go.
type frozen struct {
	called chan<- struct{}
	let    <-chan struct{}
}

func (f frozen) Call(context.Context, provider.Request) (provider.Answer, error) {
	close(f.called)
	<-f.let
	return nil, &provider.Error{Failure: provider.Broken}
}

// The process dies between each two steps of a call: it is stopped there, and
// another one takes over. Should it come to life again, it changes nothing.
func TestProcessDies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at      string
		write   string // in which write it dies, "": in the call
		applied bool
		fate    fate
		open    int64
	}{
		{"before the reserve arrives", reserving, false, notCharged, 0},
		{"after the reserve", reserving, true, lost, 1},
		{"in the call", "", false, lost, 1},
		{"before the settle arrives", settling, false, lost, 1},
		{"after the settle", settling, true, charged, 0},
	} {
		t.Run(tt.at, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, patient)
			dead, letGo, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var sends atomic.Int64
			var released atomic.Bool
			g.net.Plan = func(string, []byte) faults.Fault {
				phase := reserving
				if len(g.upstream.Calls()) > 0 {
					phase = settling
				}
				if phase != tt.write || released.Load() {
					return faults.None
				}
				n := sends.Add(1)
				if n == 1 && tt.applied {
					return faults.ErrorReply // the process hears so just before it stops
				}
				close(dead)
				<-letGo
				return faults.LostRequest
			}
			if tt.write == "" {
				g.provide(frozen{dead, letGo})
			}
			process, request := g.handler, g.request(http.MethodPost, "/v1/chat/completions", g.token, cvCall("Hi.", false))
			go func() {
				defer close(ended)
				process.ServeHTTP(discard{}, request)
			}()
			await(t, dead, "the process stops")
			g.wantCharged(tt.fate, tt.open)
			g.comeBackLater(tt.fate)
			g.wantAbandoned(int(tt.open))

			before := g.item()
			released.Store(true)
			close(letGo)
			await(t, ended, "the process ends")
			if tt.write == reserving {
				return // it then reserves anew, or gives up
			}
			after := g.item()
			for attr, v := range after {
				if n, ok := v.(*types.AttributeValueMemberN); ok && n.Value != before[attr].(*types.AttributeValueMemberN).Value {
					t.Errorf("the late settle changed %s to %s", attr, n.Value)
				}
			}
			check.That(t, len(after) == len(before), "the late settle changed the attributes from %v to %v", before, after)
		})
	}
}

// discard is a writer of answers that nobody reads.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
