package fuse

import (
	"context"
	"errors"
	"fmt"
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

// until is a block that ends in some seconds.
func (g *rig) until(seconds int64) Block {
	return Block{Until: g.clock().Add(time.Duration(seconds) * time.Second), SetBy: ops}
}

func (g *rig) block(key string, seconds int64) {
	g.t.Helper()
	check.OK(g.t, g.writer().Block(context.Background(), key, g.until(seconds)))
}

func (g *rig) unblock(key string) (was bool) {
	g.t.Helper()
	was, err := g.writer().Unblock(context.Background(), key)
	check.OK(g.t, err)
	return was
}

// blocks wants the store and a reader to have these, and no others.
func (g *rig) blocks(want ...string) {
	g.t.Helper()
	s, err := g.writer().Current(context.Background())
	running := s.Blocks.At(g.clock())
	check.That(g.t, err == nil && len(running) == len(want), "blocked are %v, %v, want %v", running, err, want)
	read, err := NewReader(g.db, g.table, g.clock).Begin(context.Background())()
	for _, key := range want {
		if b, ok := read.Blocks.Of(g.clock(), "user#other", key); err != nil || !ok || b.SetBy != ops {
			g.t.Errorf("%s: %+v, %t, %v", key, b, ok, err)
		}
	}
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	check.That(t, !g.unblock("user#a"), "somebody was blocked at first")
	g.block("user#a", 10)
	g.holds(Setting{State: Closed}) // as if it was never set
	g.block("net#b", 20)
	g.block("user#a", 30) // instead of the one before
	g.now.Add(19)
	g.blocks("user#a", "net#b")
	g.now.Add(1) // by itself, read or not
	g.blocks("user#a")
	check.That(t, !g.unblock("net#b"), "a block that had ended was ended")
	check.That(t, g.unblock("user#a") && !g.unblock("user#a"), "a block is ended once")
	g.blocks()
	for key, b := range map[string]Block{"": g.until(9), "user#a": {Until: g.clock()}, "user#b": {SetBy: ops}} {
		err := g.writer().Block(context.Background(), key, b)
		check.That(t, err != nil, "%q was blocked: %+v", key, b)
	}
	g.blocks()
}

// What sets the state keeps the blocks, and the reverse; the alarm takes a fuse that
// only has blocks for one that was never set.
func TestStateAndBlocksKeepEachOther(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	w, ctx := g.writer(), context.Background()
	alarm := Setting{State: Challenge, SetBy: "alarm", Until: g.clock().Add(time.Hour)}
	g.block("user#a", 100)
	if applied, err := w.SetIfFree(ctx, alarm, g.clock(), g.clock()); err != nil || !applied {
		t.Fatalf("applied %t, %v", applied, err)
	}
	g.blocks("user#a")
	g.block("user#b", 100)
	g.holds(alarm)
	check.OK(t, w.Release(ctx, "alarm"))
	g.blocks("user#a", "user#b")
	theirs := Setting{State: Open, SetBy: ops}
	check.OK(t, w.Set(ctx, theirs))
	g.blocks("user#a", "user#b")
	g.unblock("user#a")
	g.holds(theirs)
	g.now.Add(100) // the one that has ended is swept by the next
	g.block("user#c", 100)
	g.holds(theirs)
	if s, err := w.Current(ctx); err != nil || len(s.Blocks) != 1 {
		t.Errorf("%v, %v", s.Blocks, err)
	}
}

// There are MaxBlocks at most, also if all come at once; what has ended makes room.
func TestBlocksAreBounded(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ctx := context.Background()
	for i := range MaxBlocks - 5 {
		g.block(fmt.Sprintf("user#%d", i), 100+int64(i%2)*900)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	done, full := 0, 0
	for i := range 12 {
		all.Go(func() {
			err := g.writer().Block(ctx, fmt.Sprintf("net#%d", i), g.until(1000))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done++
			case errors.Is(err, ErrFull):
				full++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	check.That(t, done == 5 && full == 7, "%d of 12 were blocked, %d refused", done, full)
	g.block("user#1", 2000) // is there already
	g.now.Add(100)          // half of them end
	for i := range 40 {
		g.block(fmt.Sprintf("pass#%d", i), 100)
	}
	s, err := g.writer().Current(ctx)
	running := s.Blocks.At(g.clock())
	check.That(t, err == nil && len(running) == 47+5+40 && len(s.Blocks) == len(running), "%d blocks, %d running, %v", len(s.Blocks), len(running), err)
}

// Blocks, the alarm and operators change the item at once, and every first reply is
// lost or an error: nothing of anybody's is lost.
func TestBlocksUnderRacesAndFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []faults.Fault{faults.LostReply, faults.ErrorReply, faults.LostRequest, faults.ServerError} {
		g := newRig(t)
		var mu sync.Mutex
		seen := map[string]bool{}
		o := g.db.Options()
		o.BaseEndpoint = aws.String(enginetest.URL())
		o.HTTPClient = &http.Client{Transport: &faults.Transport{Plan: func(target string, body []byte) faults.Fault {
			mu.Lock()
			defer mu.Unlock()
			if key := target + string(body); !seen[key] {
				seen[key] = true
				return fault
			}
			return faults.None
		}}}
		o.Retryer = retry.AddWithMaxBackoffDelay(retry.NewStandard(), time.Millisecond)
		w, ctx := NewWriter(dynamodb.New(o), g.table, g.clock), context.Background()
		g.block("user#gone", 1000)
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				err := w.Block(ctx, fmt.Sprintf("user#%d", i), g.until(1000))
				check.That(t, err == nil, "%d: %v", fault, err)
			})
		}
		all.Go(func() {
			if was, err := w.Unblock(ctx, "user#gone"); err != nil || !was {
				t.Errorf("%d: was blocked %t, %v", fault, was, err)
			}
		})
		all.Go(func() {
			_, _ = w.SetIfFree(ctx, Setting{State: Challenge, SetBy: "alarm"}, g.clock(), g.clock())
			if err := w.Release(ctx, "alarm"); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := w.Set(ctx, Setting{State: AnonymousOff, SetBy: ops}); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		g.blocks("user#0", "user#1", "user#2", "user#3", "user#4", "user#5")
		g.holds(Setting{State: AnonymousOff, SetBy: ops})
	}
}

func TestBlocksFailLoudly(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.fault.Store(int64(faults.ServerError))
	if err := g.writer().Block(context.Background(), "user#a", g.until(9)); err == nil {
		t.Error("Block")
	}
	if _, err := g.writer().Unblock(context.Background(), "user#a"); err == nil {
		t.Error("Unblock")
	}
}
