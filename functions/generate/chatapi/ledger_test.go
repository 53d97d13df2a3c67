package chatapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// What the ledger must have of a call.
type ledgerFate int

const (
	isBilled    ledgerFate = iota // what the provider billed
	isNothing                     // the provider refused
	isWorst                       // the worst case: the provider told nothing
	isAbandoned                   // the worst case, listed apart: the process died
	isFrozen                      // as abandoned, until its process comes back; then what was billed
	isReported                    // what the provider reported, which is more than it made
	isCut                         // what was seen when it went on beyond the cap
)

// What the provider of this test makes of an answer, which is streamed.
type forgery func(body string) string

const (
	overReport = 5000 // tokens of output, far above the cap
	// cutAt is how many tokens an answer has when it is ended: its cap of 150 and the
	// margin, and the one that shows.
	cutAt = 150 + 150/8 + 16 + 1
)

var completionTokens = regexp.MustCompile(`"completion_tokens":[0-9]+,"total_tokens":[0-9]+`)

func saying(tokens int64) forgery {
	return func(body string) string {
		return completionTokens.ReplaceAllString(body, fmt.Sprintf(`"completion_tokens":%d,"total_tokens":0`, tokens))
	}
}

func replacing(old, new string) forgery {
	return func(body string) string { return strings.ReplaceAll(body, old, new) }
}

func goingOn(body string) string {
	word := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n"
	return strings.Replace(body, "data: [DONE]", strings.Repeat(word, 400)+"data: [DONE]", 1)
}

// early is an answer whose finish_reason and usage are left out, and what follows.
func early(forge forgery) forgery {
	return func(body string) string {
		return forge(replacing(`"finish_reason":"stop"`, `"finish_reason":null`)(body))
	}
}

type killed int

const (
	lives killed = iota
	diesBeforeSettle
	diesAfterEvent // and before the hold is removed
)

// way is a way in which a call can go.
type way struct {
	weight int
	mark   string
	fate   ledgerFate
	killed killed
	leaves bool // the caller, while it waits
	stalls bool // the caller, in the middle of a stream
	// What the provider does to a good answer, for which it bills all the same.
	forge  forgery
	status int
	fails  bool // so that the caller has an error
}

var ways = []way{
	{weight: 20},
	{weight: 10, mark: "[[long]]"},
	{weight: 10, mark: "[[cached:7]]"},
	{weight: 10, mark: "[[reasoning:40]]"},
	{weight: 10, mark: "[[cached:9]][[reasoning:11]]"},
	{weight: 5, mark: "[[fail:500]]", fate: isNothing},
	{weight: 5, mark: "[[fail:429]]", fate: isNothing},
	{weight: 6, mark: "[[fail:cut]]", fate: isWorst},
	{weight: 6, mark: "[[fail:nousage]]", fate: isWorst},
	{weight: 6, mark: "[[fail:empty]]", fate: isWorst},
	{weight: 4, mark: "[[fail:timeout]]", fate: isWorst, leaves: true},
	{weight: 4, mark: "[[long]]", fate: isWorst, stalls: true},
	{weight: 2, fate: isAbandoned, killed: diesBeforeSettle},
	{weight: 3, mark: "[[reasoning:150]]"}, // which leaves no text
	{weight: 3, status: http.StatusRequestTimeout, fate: isWorst, fails: true},
	{weight: 3, status: 524, fate: isWorst, fails: true},
	{weight: 3, mark: "[[cached:3]]", forge: replacing(`"finish_reason":"stop"`, `"finish_reason":null`), fails: true},
	{weight: 3, mark: "[[cached:4]]", forge: replacing(`"finish_reason":"stop"`, `"finish_reason":"error"`), fails: true},
	{weight: 3, forge: saying(1)},
	{weight: 3, forge: saying(1 << 31), fate: isWorst},
	{weight: 3, forge: saying(1_000_000_000_000), fate: isWorst},
	{weight: 3, forge: saying(9_223_372_036_854_775_807), fate: isWorst},
	{weight: 3, forge: saying(overReport), fate: isReported},
	{weight: 3, forge: early(goingOn), fate: isCut},
	{weight: 2, mark: "[[cached:5]]", killed: diesAfterEvent},
}

// plannedCall is one call of the test.
type plannedCall struct {
	way
	number   int
	user     string
	plan     string // its tier: empty is user
	feature  string
	stream   bool
	at       time.Time
	arrived  func() // when the provider has the call
	answered func() // when it has made its answer, before it is sent
}

// sums are what a summary says, added up from what the provider billed.
type sums struct {
	total                   ledger.Amount
	tiers, features, models map[string]ledger.Amount
	spenders                map[string]ledger.Amount
}

func (s *sums) add(tier, feature, model, identity string, a ledger.Amount) {
	plus := func(b ledger.Amount) ledger.Amount {
		return ledger.Amount{Calls: a.Calls + b.Calls, Cost: a.Cost + b.Cost, Abandoned: a.Abandoned + b.Abandoned,
			AbandonedCost: a.AbandonedCost + b.AbandonedCost, Estimated: a.Estimated + b.Estimated}
	}
	s.total = plus(s.total)
	s.tiers[tier] = plus(s.tiers[tier])
	s.features[feature] = plus(s.features[feature])
	s.models[model] = plus(s.models[model])
	s.spenders[identity] = plus(s.spenders[identity])
}

// money is a rig whose calls are planned, with 4 processes on one Limits and one
// Spend table.
type money struct {
	*rig
	spend     string // table
	processes []*Handler
	faulty    *faults.Transport
	faults    atomic.Int64

	mu      sync.Mutex
	planned map[int]*plannedCall
	sends   map[uint64]int    // of writes, by the hash of their body
	tokens  map[string]string // of users
}

// providerPrices are in pico-dollars per token, as the test knows them.
var providerPrices = map[string]struct {
	name                  string
	input, cached, output int64
}{
	"test-model": {"small", 400_000, 100_000, 1_600_000},
	"test-large": {"large", 3_000_000, 300_000, 15_000_000},
}

func newMoney(t *testing.T, calls int) *money {
	m := &money{planned: map[int]*plannedCall{}, sends: map[uint64]int{}, tokens: map[string]string{}}
	s := setup{upstream: upstream.Options{KeepCalls: 2 * calls}, model: m.provider}
	m.rig = s.newRig(t, func(yaml string) string {
		yaml = strings.Replace(yaml, "models:\n", `models:
  large: {provider: main, id: test-large, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 1000000,
          price_per_mtok: {input: "3.00", cached_input: "0.30", output: "15.00"}}
`, 1)
		return strings.Replace(yaml, "features:\n", "features:\n  review: {model: large, max_output_tokens: 800}\n", 1)
	})
	m.freeze(0)
	_, m.spend = enginetest.SpendTable(t)
	m.faulty = &faults.Transport{Plan: m.fault}
	for range 4 {
		m.processes = append(m.processes, m.process(m.faulty, nil))
	}
	return m
}

// fault breaks a tenth of the writes, and of those that are sent again a third,
// once more: what is sent often enough gets through.
func (m *money) fault(target string, body []byte) faults.Fault {
	if strings.HasSuffix(target, ".GetItem") {
		return faults.None
	}
	h := fnv.New64a()
	_, _ = h.Write(body)
	hash := h.Sum64()
	m.mu.Lock()
	m.sends[hash]++
	times := m.sends[hash]
	m.mu.Unlock()
	r := rand.New(rand.NewPCG(hash, 0))
	if r.IntN(10) > 0 || times > 2 || times == 2 && r.IntN(3) > 0 {
		return faults.None
	}
	m.faults.Add(1)
	kinds := []faults.Fault{faults.LostReply, faults.LostReply, faults.LostReply, faults.ErrorReply, faults.LostRequest,
		faults.LateRequest, faults.Throttled, faults.ServerError}
	return kinds[r.IntN(len(kinds))]
}

// process makes a handler whose stores are behind a network.
func (m *money) process(network http.RoundTripper, edit func(*Parts, *dynamodb.Options)) *Handler {
	m.t.Helper()
	p := Parts{
		Policy: m.policy, Bucket: m.bucket,
		Secret: func(context.Context, policy.Secret) (string, error) { return testSecret, nil },
		Log:    slog.New(slog.NewJSONHandler(m.log, nil)),
		Now:    m.now,
	}
	db := engine.Client(enginetest.URL(), func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: network}
		if edit != nil {
			edit(&p, o)
		}
	})
	p.DynamoDB, p.Ledger = db, m.ledger(db)
	h, err := Build(context.Background(), p)
	check.OK(m.t, err)
	return h
}

func (m *money) ledger(db *dynamodb.Client) *ledger.Ledger {
	m.t.Helper()
	l, err := ledger.New(db, ledger.Options{Table: m.spend, Now: m.now, Log: slog.New(slog.DiscardHandler)})
	check.OK(m.t, err)
	return l
}

// doomed makes a process that dies. From then on nothing of it reaches a store.
func (m *money) doomed(k killed) (h *Handler, arrived func()) {
	var dead, event atomic.Bool
	network := roundTrip(func(r *http.Request) (*http.Response, error) {
		if dead.Load() {
			return nil, faults.ErrLost
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil && strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem") && event.Load() {
			dead.Store(true)
		}
		return res, err
	})
	h = m.process(network, func(p *Parts, o *dynamodb.Options) {
		o.Retryer = aws.NopRetryer{}                   // the dead need no patience
		p.Bucket.SettleTimeout = 50 * time.Millisecond // in vain
	})
	if k == diesAfterEvent {
		return h, func() { event.Store(true) }
	}
	return h, func() { dead.Store(true) }
}

var callNumber = regexp.MustCompile(`Call ([0-9]+)\.`)

func (m *money) call(text string) *plannedCall {
	found := callNumber.FindStringSubmatch(text)
	if found == nil {
		return nil
	}
	n, _ := strconv.Atoi(found[1])
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.planned[n]
}

// provider tells the calls when they arrive and when they are answered.
func (m *money) provider(upstream http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		c := m.call(string(body))
		if c != nil && c.arrived != nil {
			c.arrived()
		}
		if c == nil || c.answered == nil && c.forge == nil && c.status == 0 {
			upstream.ServeHTTP(w, r)
			return
		}
		made := httptest.NewRecorder()
		upstream.ServeHTTP(made, r)
		if c.answered != nil {
			c.answered()
		}
		maps.Copy(w.Header(), made.Header())
		answer := made.Body.String()
		if c.forge != nil {
			forged := c.forge(answer)
			check.That(m.t, forged != answer, "nothing was forged in %s", answer)
			answer = forged
		}
		w.WriteHeader(cmp.Or(c.status, made.Code))
		_, _ = io.WriteString(w, answer)
	})
}

// plan makes a call known to the provider and to the sums.
func (m *money) plan(c *plannedCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.number, c.at = len(m.planned), m.now()
	m.planned[c.number] = c
	if m.tokens[c.user] == "" {
		m.tokens[c.user] = m.token(c.user, c.plan)
	}
}

// staller is a caller that takes the beginning of a stream.
type staller struct {
	*httptest.ResponseRecorder
	writes int
}

func (s *staller) Write(p []byte) (int, error) {
	if s.writes++; s.writes > 5 {
		return 0, errors.New("gone")
	}
	return s.ResponseRecorder.Write(p)
}

// make makes a planned call.
func (m *money) make(h *Handler, c *plannedCall) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.leaves {
		c.arrived = cancel
	}
	if c.killed != lives {
		h, c.arrived = m.doomed(c.killed)
	}
	body, _ := json.Marshal(map[string]any{
		"model": c.feature, "stream": c.stream || c.stalls, "max_tokens": 150,
		"messages": []map[string]string{{"role": "user", "content": fmt.Sprintf("Call %d. %s", c.number, c.mark)}},
	})
	m.mu.Lock()
	token := m.tokens[c.user]
	m.mu.Unlock()
	r := m.request(http.MethodPost, "/v1/chat/completions", token, string(body)).WithContext(ctx)
	w := httptest.NewRecorder()
	if c.stalls {
		h.ServeHTTP(&staller{ResponseRecorder: w}, r)
	} else {
		h.ServeHTTP(w, r)
	}
	whole := c.fate == isBilled || c.fate == isFrozen || c.fate == isReported || c.fate == isCut || c.forge != nil
	failed := w.Code != http.StatusOK || strings.Contains(w.Body.String(), `"error"`)
	check.That(m.t, (!whole || c.fails || !failed) && (!c.fails || failed), "call %d %+v: %d %s", c.number, c.way, w.Code, w.Body)
}

// want adds up what the provider billed for the calls with from <= at < to.
func (m *money) want(from, to time.Time, thawed bool) *sums {
	m.t.Helper()
	s := &sums{tiers: map[string]ledger.Amount{}, features: map[string]ledger.Amount{}, models: map[string]ledger.Amount{}, spenders: map[string]ledger.Amount{}}
	seen := map[int]bool{}
	for _, u := range m.upstream.Calls() {
		c := m.call(u.Messages[len(u.Messages)-1].Content)
		check.Must(m.t, c != nil && !seen[c.number], "the provider was called out of plan: %+v", u)
		seen[c.number] = true
		fate := c.fate
		if fate == isFrozen {
			fate = isAbandoned
			if thawed {
				fate = isBilled
			}
		}
		if c.at.Before(from) || !c.at.Before(to) || fate == isNothing {
			continue
		}
		p := providerPrices[u.Model]
		a := ledger.Amount{Calls: 1}
		tier := cmp.Or(c.plan, "user")
		switch b := u.Billed; fate {
		case isReported:
			a.Cost = price.Pico(int64(u.PromptTokens)*p.input + overReport*p.output)
		case isCut:
			a.Estimated, a.Cost = 1, price.Pico(int64(u.PromptTokens)*p.input+cutAt*p.output)
		case isBilled:
			if c.forge != nil && !c.fails { // it said less
				a.Estimated = 1
			}
			a.Cost = price.Pico((b.Input-b.CachedInput)*p.input + b.CachedInput*p.cached + b.Output*p.output)
		default:
			a.Estimated, a.Cost = 1, price.Pico(int64(u.PromptTokens)*p.input+int64(u.MaxOutputTokens)*p.output)
		}
		if fate == isAbandoned {
			tier, a.Abandoned, a.AbandonedCost = "", 1, a.Cost
		}
		s.add(tier, c.feature, p.name, "user#"+c.user, a)
	}
	check.That(m.t, len(seen) == len(m.planned), "the provider got %d calls of %d", len(seen), len(m.planned))
	return s
}

// wantSum asserts a sum in all its parts.
func (m *money) wantSum(l *ledger.Ledger, from, to time.Time, thawed bool) *sums {
	m.t.Helper()
	got, err := l.Sum(context.Background(), from, to)
	check.OK(m.t, err)
	want := m.want(from, to, thawed)
	check.That(m.t, got.Total == want.total, "%s to %s: the sum is\n%+v, the provider's answers come to\n%+v", from, to, got.Total, want.total)
	check.That(m.t, maps.Equal(got.Tiers, want.tiers) && maps.Equal(got.Features, want.features) && maps.Equal(got.Models, want.models),
		"by tier, feature and model the sums are\n%v\n%v\n%v, want\n%v\n%v\n%v", got.Tiers, got.Features, got.Models, want.tiers, want.features, want.models)
	var top []ledger.Spender
	for identity, a := range want.spenders {
		top = append(top, ledger.Spender{Identity: identity, Amount: a})
	}
	slices.SortFunc(top, func(a, b ledger.Spender) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Identity, b.Identity))
	})
	if top = top[:min(10, len(top))]; !slices.Equal(got.Top, top) {
		m.t.Errorf("the dearest are\n%v, want\n%v", got.Top, top)
	}
	return want
}

// wantKnown asserts a sum but for the abandoned calls, of which some may not have
// been found yet.
func (m *money) wantKnown(l *ledger.Ledger, from, to time.Time) {
	m.t.Helper()
	got, err := l.Sum(context.Background(), from, to)
	check.OK(m.t, err)
	known := func(a ledger.Amount) ledger.Amount {
		return ledger.Amount{Calls: a.Calls - a.Abandoned, Cost: a.Cost - a.AbandonedCost, Estimated: a.Estimated - a.Abandoned}
	}
	want := m.want(from, to, false).total
	check.Equal(m.t, known(got.Total), known(want), "on the way, without the abandoned, the sum is")
	check.That(m.t, got.Total.AbandonedCost <= want.AbandonedCost, "on the way %s count as abandoned, %s are", got.Total.AbandonedCost, want.AbandonedCost)
}

// each does something for all, some at a time.
func each[T any](all []T, do func(int, T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 100)
	for i, one := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i, one)
		})
	}
	wg.Wait()
}

// The ledger's sums are what the provider's own answers come to, to the
// pico-dollar: calls end in every way, through 4 processes, over a network that
// loses a tenth of the writes, and some processes die in the middle of a call or
// stand still until they are thought to be dead.
//
// TOKENFUSE_LEDGER_CALLS sets the number of calls, such as 20000.
func TestLedgerIsExact(t *testing.T) {
	calls := 2000
	if s := os.Getenv("TOKENFUSE_LEDGER_CALLS"); s != "" {
		var err error
		if calls, err = strconv.Atoi(s); err != nil || calls < 200 {
			t.Fatalf("TOKENFUSE_LEDGER_CALLS is %q; it must be a number of at least 200", s)
		}
	}
	const batch = 250
	users := max(batch, calls/20)
	m := newMoney(t, calls)
	start := m.now()
	summing := m.ledger(engine.Client(enginetest.URL(), func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: m.faulty} }))
	random := rand.New(rand.NewPCG(1, 2))
	var lottery []way
	for _, w := range ways {
		for range w.weight {
			lottery = append(lottery, w)
		}
	}
	next := 0
	one := func(w way, user int) *plannedCall {
		c := &plannedCall{way: w, user: "u" + strconv.Itoa(user), feature: []string{"docqa", "review"}[random.IntN(2)], stream: random.IntN(2) == 0}
		if user%3 == 0 {
			c.plan = "pro"
		}
		m.plan(c)
		return c
	}
	var times []time.Time
	for next < calls {
		var some []*plannedCall
		for range min(batch, calls-next) {
			some = append(some, one(lottery[random.IntN(len(lottery))], next%users))
			next++
		}
		times = append(times, m.now())
		each(some, func(i int, c *plannedCall) { m.make(m.processes[i%4], c) })
		check.OK(t, m.faulty.Deliver())
		m.freeze(17 * time.Second)
		if len(times)%3 == 0 {
			m.wantKnown(summing, start, m.now())
		}
	}

	// Some processes stand still in the middle of a call, for minutes.
	var frozen sync.WaitGroup
	thaw := make(chan struct{})
	thawOnce := sync.OnceFunc(func() { close(thaw) })
	defer frozen.Wait()
	defer thawOnce() // whatever fails before
	for user := range 10 {
		c := one(way{mark: "[[cached:3]]", fate: isFrozen}, user)
		c.stream = false
		held := make(chan struct{})
		c.answered = func() {
			close(held)
			<-thaw
		}
		frozen.Go(func() { m.make(m.processes[user%4], c) })
		await(t, held, "the provider has the call")
	}

	// Everybody who has a hold that nobody settles comes back, to another process.
	m.freeze(10 * time.Minute)
	all := make([]int, users)
	each(all, func(user, _ int) {
		for range 20 {
			state, err := m.processes[user%4].admission.Buckets.Peek(context.Background(), "user#u"+strconv.Itoa(user))
			if err != nil {
				t.Error(err)
				return
			}
			if len(state.Holds) == 0 {
				return
			}
			c := &plannedCall{way: way{fate: isBilled}, user: "u" + strconv.Itoa(user), feature: "docqa"}
			if user%3 == 0 {
				c.plan = "pro"
			}
			m.plan(c)
			m.make(m.processes[(user+1)%4], c)
		}
		t.Errorf("user %d still has holds", user)
	})
	end := m.now().Add(time.Microsecond)
	s := m.wantSum(summing, start, end, false)
	least := int64(calls / 200)
	check.That(t, s.total.Abandoned >= least, "only %d calls were abandoned, want %d at least", s.total.Abandoned, least)

	// They come back after all.
	thawOnce()
	frozen.Wait()
	check.OK(t, m.faulty.Deliver())
	m.wantSum(summing, start, end, true)
	m.freeze(ledger.LongestCall + 2*ledger.Grace) // every minute is closed
	for range 2 {                                 // by the events; by the roll-ups
		s = m.wantSum(m.ledger(engine.Client(enginetest.URL())), start, end, true)
	}
	for i := range 5 { // any window, to the microsecond
		from, to := times[i*len(times)/8], times[(i+3)*len(times)/8]
		m.wantSum(summing, from, to, true)
		m.wantSum(summing, from.Add(time.Microsecond), to.Add(time.Microsecond), true)
	}
	// The month, by its hours, from which the alarm takes its baseline.
	m.freeze(2 * time.Hour)
	for range 2 { // by the minutes; by the hours' own roll-ups
		hours, err := summing.Hours(context.Background(), start.Truncate(time.Hour), m.now())
		check.OK(t, err)
		var month ledger.Amount
		for _, h := range hours {
			month = ledger.Amount{Calls: month.Calls + h.Calls, Cost: month.Cost + h.Cost, Estimated: month.Estimated + h.Estimated,
				Abandoned: month.Abandoned + h.Abandoned, AbandonedCost: month.AbandonedCost + h.AbandonedCost}
		}
		check.Equal(t, month, s.total, "the month's hours come to")
	}
	check.That(t, m.faults.Load() >= int64(calls/10), "only %d writes failed", m.faults.Load())
	t.Logf("%d calls, %d of them in the ledger: $%s; estimated %d, abandoned %d ($%s); %d faults",
		len(m.planned), s.total.Calls, s.total.Cost, s.total.Estimated, s.total.Abandoned, s.total.AbandonedCost, m.faults.Load())
}
