package fuse

import (
	"context"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

type rig struct {
	t     *testing.T
	db    *dynamodb.Client
	table string
	reads atomic.Int64
	fault atomic.Int64
	now   atomic.Int64
	*Reader
}

func newRig(t *testing.T) *rig {
	g := &rig{t: t}
	net := &faults.Transport{Plan: func(string, []byte) faults.Fault {
		g.reads.Add(1)
		return faults.Fault(g.fault.Load())
	}}
	db, table := enginetest.Table(t, func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: net}
		o.Retryer = aws.NopRetryer{}
	})
	g.db, g.table = db, table
	g.now.Store(1_800_000_000)
	g.Reader = NewReader(db, table, func() time.Time { return time.Unix(g.now.Load(), 0) })
	return g
}

func (g *rig) set(state string, until int64) {
	g.t.Helper()
	item := dynamo.Item{"pk": dynamo.Text("fuse"), "state": dynamo.Text(state), "set_by": dynamo.Text("somebody")}
	if until != 0 {
		item["until"] = dynamo.Number(until)
	}
	if _, err := g.db.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &g.table, Item: item}); err != nil {
		g.t.Fatal(err)
	}
	g.reads.Store(0)
}

func (g *rig) want(state State) {
	g.t.Helper()
	s, err := g.Begin(context.Background())()
	check.That(g.t, err == nil && s.State == state, "%+v, %v, want %s", s, err, state)
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.want(Closed) // nobody has set it
	g.set("open", g.now.Load()+10)
	g.want(Closed) // still fresh
	check.Equal(t, g.reads.Load(), 0, "reads of a fresh state")
	g.now.Add(3)
	g.want(Open)
	g.now.Add(6)
	g.want(Open)
	g.now.Add(1) // its time: it ends by itself, read or not
	g.want(Closed)
	g.set("anonymous_off", 0)
	g.now.Add(3)
	g.want(AnonymousOff)
	g.fault.Store(int64(faults.ServerError)) // the last known state holds
	g.now.Add(1000)
	g.want(AnonymousOff)
	g.fault.Store(int64(faults.None))
	g.set("challenge", 0)
	g.want(Challenge)
	g.now.Add(-100) // a clock that steps back asks again
	g.set("closed", 0)
	g.want(Closed)
}

func TestNeverRead(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.fault.Store(int64(faults.LostRequest))
	if s, err := g.Begin(context.Background())(); err == nil {
		t.Errorf("state %+v though it was never read", s)
	}
	g.fault.Store(int64(faults.None))
	g.want(Closed)
}

func TestNonsenseIsNoState(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.set("nonsense", 0)
	if s, err := g.Begin(context.Background())(); err == nil {
		t.Errorf("state %+v of a nonsense item", s)
	}
}

func TestOneReadForAll(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.set("open", 0)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { g.want(Open) })
	}
	wg.Wait()
	check.Equal(t, g.reads.Load(), 1, "reads for 50 requests at once")
}

// A wait ends with the read, and a read after 2 s: nobody who leaves early leaves one
// under way.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.fault.Store(int64(faults.Hang))
	ctx, cancel := context.WithCancel(context.Background())
	began := time.Now()
	wait := g.Begin(ctx)
	cancel()
	if s, err := wait(); err == nil {
		t.Errorf("%+v from a store that hangs", s)
	}
	took := time.Since(began)
	check.That(t, took >= readTimeout && took <= readTimeout+5*time.Second, "it took %s", took)
	check.That(t, g.reading == nil, "a read is under way after the wait")
}

// held is a store that hands out its reads, each to be answered with a state.
type held chan chan string

func (h held) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	read := make(chan string)
	h <- read
	return &dynamodb.GetItemOutput{Item: dynamo.Item{"pk": dynamo.Text("fuse"), "state": dynamo.Text(<-read)}}, nil
}

func newHeld() (held, *Reader, *atomic.Int64) {
	h, now := make(held, 8), &atomic.Int64{}
	now.Store(1_800_000_000)
	return h, NewReader(h, "table", func() time.Time { return time.Unix(now.Load(), 0) }), now
}

// The age of a state counts from when it was asked for: the answer may be old when it
// arrives.
func TestSlowReadIsOld(t *testing.T) {
	t.Parallel()
	h, r, now := newHeld()
	wait := r.Begin(context.Background())
	read := <-h
	now.Add(2)
	read <- "closed"
	if s, err := wait(); err != nil || s.State != Closed {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, ok := r.Fresh(); !ok {
		t.Error("2 s after the question the answer is old")
	}
	now.Add(1)
	if s, ok := r.Fresh(); ok {
		t.Errorf("3 s after the question %+v is fresh", s)
	}
}

// A process is frozen while it reads, and thaws an hour later: what that read brings is
// from before, and is not obeyed. Whether it ends before the new one or after it.
func TestReadAcrossAFreeze(t *testing.T) {
	t.Parallel()
	for name, oldLast := range map[string]bool{"the old read ends first": false, "the new read ends first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, r, now := newHeld()
			frozen := r.Begin(context.Background())
			old := <-h
			now.Add(3600)
			thawed := r.Begin(context.Background())
			var young chan string
			select {
			case young = <-h:
			case <-time.After(20 * time.Second):
				t.Fatal("nobody reads anew")
			}
			if oldLast {
				young <- "open"
				old <- "closed"
			} else {
				old <- "closed"
				young <- "open"
			}
			for _, wait := range []func() (Status, error){thawed, frozen} {
				if s, err := wait(); err != nil || s.State != Open {
					t.Errorf("%+v, %v is obeyed", s, err)
				}
			}
			if s, ok := r.Fresh(); !ok || s.State != Open {
				t.Errorf("%+v, fresh: %t", s, ok)
			}
		})
	}
}
