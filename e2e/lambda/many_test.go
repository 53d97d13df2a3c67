package lambda

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// many is how many calls a process has at a time, as Lambda Managed Instances give them.
const many = 64

const (
	traceOf  = "4bf92f3577b34da6a3ce929d0e0e47%02x"
	parentOf = "00f067aa0ba902b7"
)

// atOnce is a process with many calls at a time, whose model answers none of them before
// all are there.
type atOnce struct {
	*rig
	f    *runtimeapi.Function
	meet sync.WaitGroup
}

func newAtOnce(t *testing.T, model func(w http.ResponseWriter, r *http.Request, next http.Handler)) *atOnce {
	t.Helper()
	m := &atOnce{}
	m.meet.Add(many)
	m.rig = newRig(t, func(g *rig) {
		g.onModel = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				m.meet.Done()
				m.meet.Wait()
				model(w, r, next)
			})
		}
	})
	m.f = m.warm("generate", fmt.Sprintf("AWS_LAMBDA_MAX_CONCURRENCY=%d", many), "AWS_LAMBDA_INITIALIZATION_TYPE=lambda-managed-instances")
	select {
	case <-m.f.Registered():
	case <-within(t).Done():
		t.Fatal("it does not ask for SIGTERM")
	}
	return m
}

func userOf(n int) string { return fmt.Sprintf("user-%d", n) }

// call is the call of the nth user, under an id of its own.
func (m *atOnce) call(n int) *runtimeapi.Invocation {
	var e events.APIGatewayProxyRequest
	check.OK(m.t, json.Unmarshal(event(m.t, "stage_prefix", "POST", "/v1/chat/completions", m.token(userOf(n)), chat("ask", question, n%2 == 0)), &e))
	e.RequestContext.RequestID = "request-of-" + userOf(n)
	e.MultiValueHeaders["traceparent"] = []string{fmt.Sprintf("00-"+traceOf+"-"+parentOf+"-01", n+1)}
	raw, err := json.Marshal(e)
	check.OK(m.t, err)
	return m.f.Invoke(raw, timeout)
}

// checkLog: each call has its line and its spend event, and no line is mixed of two.
func (m *atOnce) checkLog(outcome string) {
	m.t.Helper()
	requests, spends := map[string]bool{}, map[string]bool{}
	for _, line := range logged(m.t, m.f) {
		id, _ := line["request_id"].(string)
		user := strings.TrimPrefix(id, "request-of-")
		switch line["msg"] {
		case "request":
			var n int
			_, err := fmt.Sscanf(user, "user-%d", &n)
			check.That(m.t, err == nil && line["identity"] == "user#"+user && line["outcome"] == outcome && line["trace_id"] == fmt.Sprintf(traceOf, n+1), "%v", line)
			requests[user] = true
		case "spend":
			e, _ := line["event"].(map[string]any)
			check.That(m.t, e["identity"] == "user#"+user, "%v", line)
			spends[user] = true
		}
	}
	check.That(m.t, len(requests) == many && len(spends) == many, "%d lines of requests, %d of spend events", len(requests), len(spends))
}

// 64 calls at a time in one process are 64 calls: each is settled to what was used, the
// process draws from its pool for all of them together, and no line tells of two.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	var traced sync.Map
	m := newAtOnce(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		traced.Store(r.Header.Get("Traceparent")[:35], true)
		next.ServeHTTP(w, r)
	})
	var all sync.WaitGroup
	var tokens [many]int64
	for n := range many {
		i := m.call(n)
		all.Go(func() {
			a := whole(t, i)
			check.That(t, a.status == 200 && a.header.Get("X-Request-Id") == "request-of-"+userOf(n), "%d %v %s", a.status, a.header, a.body)
			body := a.body
			if n%2 == 0 { // usage is in the last event but [DONE]
				lines := strings.Split(strings.TrimSpace(body), "\n\n")
				body = strings.TrimPrefix(lines[len(lines)-2], "data: ")
			}
			tokens[n] = decode(t, body).Usage.Total
		})
	}
	all.Wait()
	for n := range many {
		state := m.peek("user#" + userOf(n))
		check.That(t, len(state.Holds) == 0 && used(state) == tokens[n] && tokens[n] > 0, "%s: %d open, %d used of %d", userOf(n), len(state.Holds), used(state), tokens[n])
		_, ok := traced.Load(fmt.Sprintf("00-"+traceOf, n+1))
		check.That(t, ok, "the trace of %s did not reach the model", userOf(n))
	}
	_, billed := m.stage.Upstream.Totals()
	cost := price.Pico(billed.Input*400_000 + billed.Output*1_600_000)
	sum := m.spent()
	check.That(t, sum.Total.Calls == many && sum.Total.Cost == cost, "the ledger has %+v; the model billed $%s", sum.Total, cost)
	check.OK(t, m.f.Signal(syscall.SIGTERM))
	m.ended(true)
	m.checkLog("answered")
}

// ended waits until the process has ended by itself, all settled.
func (m *atOnce) ended(settled bool) {
	m.t.Helper()
	select {
	case <-m.f.Exited():
	case <-within(m.t).Done():
		m.t.Fatal("SIGTERM does not end it")
	}
	check.That(m.t, m.f.State().Success(), "it ended with %v", m.f.State())
	for _, line := range logged(m.t, m.f) {
		if line["msg"] == "the function ends" {
			check.That(m.t, line["all_settled"] == settled, "%v", line)
			return
		}
	}
	m.t.Error("it says nothing of its end")
}

// SIGTERM in the midst of 64 calls loses no settle: callers have used what was seen, the
// ledger assumes the worst, and what the process held of the pool is back.
func TestManyEndInOrder(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	answering := make(chan struct{})
	m := newAtOnce(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Some text is here\"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		if begun.Add(1) == many {
			close(answering)
		}
		<-r.Context().Done()
	})
	var all sync.WaitGroup
	var shown atomic.Int64
	texts := make(chan struct{}, many)
	for n := range many {
		i := m.call(n)
		all.Go(func() {
			r := open(t, i)
			if n%2 != 0 { // in one piece: an error, since nothing was shown
				check.That(t, strings.Contains(r.rest(t), `"provider_error"`), "%d", r.status)
				return
			}
			var seen strings.Builder
			for {
				line, err := r.body.ReadString('\n')
				if strings.Contains(line, "Some text") {
					texts <- struct{}{}
				}
				seen.WriteString(line)
				if err != nil {
					break
				}
			}
			if strings.Contains(seen.String(), "provider_error") {
				shown.Add(1)
			}
		})
	}
	<-answering
	for range many / 2 { // the streams have shown something
		select {
		case <-texts:
		case <-within(t).Done():
			t.Fatal("the streams do not begin")
		}
	}
	left := m.poolLeft()
	begin := time.Now()
	check.OK(t, m.f.Signal(syscall.SIGTERM))
	m.ended(true)
	t.Logf("it ended in %s", time.Since(begin).Round(time.Millisecond))
	all.Wait()
	check.That(t, shown.Load() == many/2, "%d streams say that they have failed", shown.Load())

	const output, capped = 4, 400 // tokens of the text, and the most that could have come
	var input int64
	for n := range many {
		state := m.peek("user#" + userOf(n))
		input = used(state) - output
		check.That(t, len(state.Holds) == 0 && input > 0 && input < 100, "%s: %d open, %d used", userOf(n), len(state.Holds), used(state))
	}
	sum := m.spent()
	worst := price.Pico(input*400_000 + capped*1_600_000)
	check.That(t, sum.Total.Calls == many && sum.Total.Cost == many*worst, "the ledger has %+v, not %d of $%s", sum.Total, many, worst)
	m.checkLog("provider_error")
	// All that was leased is back or was spent, but for the margin of a lease (5 s).
	capacity, period := m.pool()
	lost := capacity / int64(period/time.Second) * 6
	back := m.poolLeft()
	check.That(t, back > left && back >= capacity-int64(sum.Total.Cost)-lost, "%d of %d are left in the pool, %d before; %d was spent", back, capacity, left, sum.Total.Cost)
}

func (m *atOnce) poolState() bucket.PoolState {
	m.t.Helper()
	b, err := bucket.New(m.stage.DynamoDB(), bucket.Options{Table: m.stage.Limits, LongestPeriod: tokensPeriod, ReserveTimeout: patience, AttemptTimeout: patience})
	check.OK(m.t, err)
	p, err := b.NewPool(keys.Pool.Key("all"), int64(5*price.Dollar), time.Hour, bucket.PoolOptions{})
	check.OK(m.t, err)
	state, err := p.State(m.t.Context())
	check.OK(m.t, err)
	return state
}

func (m *atOnce) poolLeft() int64 { return m.poolState().Remaining }

// pool is the burst of the pool, and how long it takes to refill.
func (m *atOnce) pool() (capacity int64, period time.Duration) {
	l := m.poolState().Limit
	return l.Capacity, l.Period
}
