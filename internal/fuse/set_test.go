package fuse

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

const ops = "arn:aws:iam::123456789012:user/ops"

func (g *rig) clock() time.Time { return time.Unix(g.now.Load(), 0) }

func (g *rig) writer() *Writer { return NewWriter(g.db, g.table, g.clock) }

// holds wants a setting in the store.
func (g *rig) holds(want Setting) {
	g.t.Helper()
	got, err := g.writer().Current(context.Background())
	check.That(g.t, err == nil && got.State == want.State && got.SetBy == want.SetBy && got.Until.Equal(want.Until), "%+v, %v, want %+v", got, err, want)
}

func TestSetOverridesAll(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	w, ctx := g.writer(), context.Background()
	g.holds(Setting{State: Closed})
	for _, s := range []Setting{
		{State: Open, SetBy: "alarm"},
		{State: AnonymousOff, SetBy: ops, Until: g.clock().Add(time.Hour)},
		{State: Challenge, SetBy: ops}, // without an end: the one before is gone
		{State: Closed, SetBy: ops},
	} {
		check.OK(t, w.Set(ctx, s))
		g.holds(s)
		g.now.Add(3)
		g.want(s.State) // the reader agrees
	}
	for _, s := range []Setting{{State: "none", SetBy: ops}, {SetBy: ops}, {State: Open}} {
		err := w.Set(ctx, s)
		check.That(t, err != nil, "%+v was set", s)
	}
	g.holds(Setting{State: Closed, SetBy: ops})
}

func TestSetIfFree(t *testing.T) {
	t.Parallel()
	alarm := Setting{State: Challenge, SetBy: "alarm"}
	for name, c := range map[string]struct {
		before *Setting
		age    int64 // seconds between it and now; the incident began 100 s ago, and is known since 20 s ago
		want   bool
	}{
		"never set":                         {nil, 0, true},
		"own":                               {&Setting{State: Open, SetBy: "alarm"}, 10, true},
		"own, released before":              {&Setting{State: Closed, SetBy: "alarm"}, 20, true},
		"own, released since":               {&Setting{State: Closed, SetBy: "alarm"}, 19, false},
		"another's":                         {&Setting{State: Challenge, SetBy: ops}, 10_000, false},
		"another's, running":                {&Setting{State: Open, SetBy: ops, Until: time.Unix(1_800_000_101, 0)}, 100, false},
		"another's, ended":                  {&Setting{State: Open, SetBy: ops, Until: time.Unix(1_800_000_100, 0)}, 100, true},
		"closed before the incident":        {&Setting{State: Closed, SetBy: ops}, 101, true},
		"closed as it began":                {&Setting{State: Closed, SetBy: ops}, 100, false},
		"closed in the incident":            {&Setting{State: Closed, SetBy: ops}, 50, false},
		"closed for a time that still runs": {&Setting{State: Closed, SetBy: ops, Until: time.Unix(1_800_000_300, 0)}, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			w, ctx := g.writer(), context.Background()
			if c.before != nil {
				check.OK(t, w.Set(ctx, *c.before))
			}
			g.now.Add(c.age)
			applied, err := w.SetIfFree(ctx, alarm, g.clock().Add(-100*time.Second), g.clock().Add(-20*time.Second))
			check.Must(t, err == nil && applied == c.want, "applied %t, %v", applied, err)
			if want := alarm; applied {
				g.holds(want)
			} else {
				g.holds(*c.before)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	w, ctx := g.writer(), context.Background()
	release := func() {
		t.Helper()
		check.OK(t, w.Release(ctx, "alarm"))
	}
	release() // nothing is there
	g.holds(Setting{State: Closed})
	if _, err := w.SetIfFree(ctx, Setting{State: Open, SetBy: "alarm", Until: g.clock().Add(time.Hour)}, g.clock(), g.clock()); err != nil {
		t.Fatal(err)
	}
	release()
	g.holds(Setting{State: Closed, SetBy: "alarm"})
	release()
	theirs := Setting{State: Open, SetBy: ops}
	check.OK(t, w.Set(ctx, theirs))
	release()
	g.holds(theirs)
}

// A writer whose first answer is always lost, or an error, does the same.
func TestWritesAreSafeToRepeat(t *testing.T) {
	t.Parallel()
	for _, fault := range []faults.Fault{faults.LostReply, faults.ErrorReply, faults.LostRequest, faults.ServerError} {
		g := newRig(t)
		var mu sync.Mutex
		seen := map[string]bool{}
		net := &faults.Transport{Plan: func(target string, body []byte) faults.Fault {
			mu.Lock()
			defer mu.Unlock()
			if key := target + string(body); !seen[key] {
				seen[key] = true
				return fault
			}
			return faults.None
		}}
		o := g.db.Options()
		o.BaseEndpoint, o.HTTPClient = aws.String(enginetest.URL()), &http.Client{Transport: net}
		o.Retryer = retry.AddWithMaxBackoffDelay(retry.NewStandard(), time.Millisecond)
		w, ctx := NewWriter(dynamodb.New(o), g.table, g.clock), context.Background()
		applied, err := w.SetIfFree(ctx, Setting{State: Open, SetBy: "alarm"}, g.clock(), g.clock())
		check.That(t, err == nil && applied, "%d: applied %t, %v", fault, applied, err)
		g.holds(Setting{State: Open, SetBy: "alarm"})
		if err := w.Release(ctx, "alarm"); err != nil {
			t.Error(err)
		}
		g.holds(Setting{State: Closed, SetBy: "alarm"})
		if err := w.Set(ctx, Setting{State: Challenge, SetBy: ops}); err != nil {
			t.Error(err)
		}
		g.holds(Setting{State: Challenge, SetBy: ops})
		if applied, err := w.SetIfFree(ctx, Setting{State: Open, SetBy: "alarm"}, g.clock(), g.clock()); err != nil || applied {
			t.Errorf("%d: applied %t, %v", fault, applied, err)
		}
	}
}

func TestWritesFailLoudly(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.fault.Store(int64(faults.ServerError))
	w, ctx := g.writer(), context.Background()
	if err := w.Set(ctx, Setting{State: Open, SetBy: ops}); err == nil {
		t.Error("Set")
	}
	if applied, err := w.SetIfFree(ctx, Setting{State: Open, SetBy: "alarm"}, g.clock(), g.clock()); err == nil || applied {
		t.Error("SetIfFree")
	}
	if err := w.Release(ctx, "alarm"); err == nil {
		t.Error("Release")
	}
	if _, err := w.Current(ctx); err == nil {
		t.Error("Current")
	}
}
