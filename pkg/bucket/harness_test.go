package bucket

import (
	"context"
	"flag"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func TestMain(m *testing.M) {
	// Each step of the model is a round trip; more of them find no more.
	if err := flag.Set("rapid.checks", "50"); err != nil {
		panic(err)
	}
	os.Exit(enginetest.Main(m))
}

// clock is a clock that only a test moves.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.micros.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.micros.Load()) }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// world is one table with a clock and a faulty network, and processes that share
// nothing else.
type world struct {
	t     *testing.T
	clock *clock
	net   *faults.Transport
	plan  func(n int) faults.Fault // of the n-th call from now, counted from 1
	calls atomic.Int64
	db    *dynamodb.Client // through the faulty network
	raw   *dynamodb.Client // past it
	table string

	abandoned    []Abandoned
	abandonedErr error
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, clock: newClock()}
	w.net = &faults.Transport{Plan: func(string, []byte) faults.Fault {
		n := w.calls.Add(1)
		if w.plan == nil {
			return faults.None
		}
		return w.plan(int(n))
	}}
	w.db, w.table = enginetest.Table(t, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: w.net} })
	w.raw, _ = enginetest.Table(t)
	return w
}

// process is a Buckets of its own on the world's table.
func (w *world) process(adjust ...func(*Options)) *Buckets {
	w.t.Helper()
	opts := Options{
		Table: w.table, LongestPeriod: 24 * time.Hour, Now: w.clock.now,
		AttemptTimeout: 30 * time.Second, ReserveTimeout: time.Minute, SettleTimeout: time.Minute,
		OnAbandoned: func(_ context.Context, a Abandoned) error {
			w.abandoned = append(w.abandoned, a)
			return w.abandonedErr
		},
	}
	for _, f := range adjust {
		f(&opts)
	}
	b, err := New(w.db, opts)
	check.OK(w.t, err)
	return b
}

// faulty sets what happens to the next calls, in order; later ones go through.
func (w *world) faulty(fs ...faults.Fault) {
	w.calls.Store(0)
	w.plan = func(n int) faults.Fault {
		if n <= len(fs) {
			return fs[n-1]
		}
		return faults.None
	}
}

// item reads an item as it is stored.
func (w *world) item(key string) item {
	w.t.Helper()
	out, err := w.raw.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: &w.table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{attrKey: &types.AttributeValueMemberS{Value: key}}})
	check.OK(w.t, err)
	return out.Item
}

// now is the time by the world's clock.
func (w *world) now() micros { return at(w.clock.now()) }

// micros reads a time.
func (w *world) micros(key, attr string) micros { return micros(w.number(key, attr)) }

func (w *world) number(key, attr string) int64 {
	w.t.Helper()
	n, err := w.item(key).number(attr)
	check.OK(w.t, err)
	return n
}

// left is what remains of a limit, by what is stored.
func (w *world) left(key string, l Limit) int64 {
	w.t.Helper()
	return remaining(w.micros(key, l.of("").tat()), w.now(), l.Capacity, l.period())
}

// wantOpen asserts the number of open holds, both as counted and as marked.
func (w *world) wantOpen(key string, want int) {
	w.t.Helper()
	live := 0
	for h := range w.item(key).holds() {
		if !h.dead {
			live++
		}
	}
	o := w.number(key, attrOpen)
	check.Must(w.t, o == int64(want) && live == want, "%s: open count %d and %d live holds, want %d", key, o, live, want)
}

var (
	tokens   = Limit{Name: "tokens", Capacity: 5000, Period: time.Hour, Return: OnSettle}
	requests = Limit{Name: "requests", Capacity: 20, Period: time.Minute, Return: Never}
	quota    = Limit{Name: "cv", Capacity: 10, Period: 24 * time.Hour, Return: OnExpiry}
)

func (w *world) request(key string, charges ...Charge) Request {
	return Request{Key: key, Charges: charges, MaxInFlight: 8, Deadline: w.clock.now().Add(time.Minute)}
}

func (w *world) admit(b *Buckets, req Request) *Reservation {
	w.t.Helper()
	d, err := b.Reserve(context.Background(), req)
	check.OK(w.t, err)
	check.Must(w.t, d.Reservation != nil, "denied by %+v", d.Denials)
	return d.Reservation
}

func (w *world) deny(b *Buckets, req Request, limit string) Denial {
	w.t.Helper()
	d, err := b.Reserve(context.Background(), req)
	check.OK(w.t, err)
	check.Must(w.t, d.Reservation == nil, "admitted")
	check.Must(w.t, d.Denials[0].Limit.Name == limit, "denied by %q, want %q", d.Denials[0].Limit.Name, limit)
	return d.Denials[0]
}

// settle settles, after which what the receipt says is left is what the store has.
func (w *world) settle(r *Reservation, used ...int64) {
	w.t.Helper()
	again := r.settled
	check.OK(w.t, r.Settle(context.Background(), used))
	check.Equal(w.t, len(r.Left()), len(r.charges), "limits are left")
	for i, s := range r.Left() {
		c := r.charges[i]
		check.That(w.t, again || s == c.Limit.status(w.micros(r.key, c.tat()), r.b.now()), "%+v is said to be left", s)
	}
}

// put overwrites a number attribute behind the package's back.
func (w *world) put(key, attr, number string) {
	w.t.Helper()
	_, err := w.raw.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{TableName: &w.table,
		Key:                       map[string]types.AttributeValue{attrKey: &types.AttributeValueMemberS{Value: key}},
		UpdateExpression:          aws.String("SET #a = :v"),
		ExpressionAttributeNames:  map[string]string{"#a": attr},
		ExpressionAttributeValues: map[string]types.AttributeValue{":v": &types.AttributeValueMemberN{Value: number}},
	})
	check.OK(w.t, err)
}

// awaitItem returns once an item is there.
func (w *world) awaitItem(key string) {
	for w.item(key) == nil {
		runtime.Gosched()
	}
}
