package chatapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// asProduction has the times of production.
var asProduction = setup{bucket: bucket.Options{AttemptTimeout: time.Second}}

// flapping makes of each write a number, from 1 on, and lets plan decide over it.
func flapping(plan func(n int, key string) faults.Fault) func(string, []byte) faults.Fault {
	var mu sync.Mutex
	n := 0
	return func(_ string, body []byte) faults.Fault {
		mu.Lock()
		defer mu.Unlock()
		n++
		for _, key := range []string{"pool#anonymous", "pool#all", "net#", "user#", "used#", "fuse"} {
			if bytes.Contains(body, []byte(`{"S":"`+key)) {
				return plan(n, key)
			}
		}
		return plan(n, "")
	}
}

// A store that comes and goes keeps nobody waiting for longer than one that is away:
// what a call asks of it has one time together, and so has what is then taken back.
func TestUnavailableWithinFourSeconds(t *testing.T) {
	t.Parallel()
	every := func(k int, f faults.Fault) func(int, string) faults.Fault {
		return func(n int, _ string) faults.Fault {
			if n%k == 0 {
				return faults.None
			}
			return f
		}
	}
	only := func(f faults.Fault, keys ...string) func(int, string) faults.Fault {
		return func(_ int, key string) faults.Fault {
			for _, k := range keys {
				if k == key {
					return f
				}
			}
			return faults.None
		}
	}
	limits := func(g *rig) answer { return g.do(g.request(http.MethodGet, "/v1/limits", g.token("123", ""), "")) }
	user := func(g *rig) answer { return g.chat(g.token("123", ""), question) }
	visitor := func(g *rig) answer { return g.visit("203.0.113.7:1", "browser", question) }
	pass := func(g *rig) answer {
		payload := g.payload("203.0.113.7:1")
		begun := time.Now()
		a := g.post("203.0.113.7:1", `{"payload":"`+payload+`"}`)
		a.header.Set("Took", time.Since(begun).String())
		return a
	}
	third := func() func(int, string) faults.Fault { // each item answers its third send
		sends := map[string]int{}
		return func(_ int, key string) faults.Fault {
			if sends[key]++; sends[key]%3 == 0 {
				return faults.None
			}
			return faults.Hang
		}
	}
	for name, test := range map[string]struct {
		ask  func(*rig) answer
		plan func(n int, key string) faults.Fault
		fuse bool // is read through the same network
	}{
		"a user, nothing is answered":                    {user, every(1000, faults.Hang), true},
		"a visitor, nothing is answered":                 {visitor, every(1000, faults.Hang), true},
		"a visitor, all is done and nothing is answered": {visitor, every(1000, faults.HangReply), true},
		"the limits hang, the pools do not":              {visitor, only(faults.Hang, "net#"), false},
		"a user's limits hang after they were written":   {user, only(faults.HangReply, "user#"), false},
		"the second pool hangs":                          {visitor, only(faults.Hang, "pool#all"), false},
		"the pools give nothing back":                    {visitor, only(faults.HangReply, "pool#all", "net#"), false},
		"the fuse hangs, and then what was taken": {visitor, func() func(int, string) faults.Fault {
			seen := map[string]int{}
			return func(_ int, key string) faults.Fault {
				seen[key]++
				if key == "fuse" || seen[key] > 1 {
					return faults.Hang
				}
				return faults.None
			}
		}(), true},
		"each item answers its third send": {visitor, third(), false},
		"of a user, too":                   {user, third(), false},
		"one answer of three":              {visitor, every(3, faults.Hang), false},
		"errors and silence in turn":       {user, func(n int, _ string) faults.Fault { return []faults.Fault{faults.ServerError, faults.Hang}[n%2] }, true},
		"throttled":                        {visitor, every(1000, faults.Throttled), true},
		"limits, nothing is answered":      {limits, every(1000, faults.Hang), true},
		"limits, the fuse hangs":           {limits, only(faults.Hang, "fuse"), true},
		"a pass, nothing is answered":      {pass, every(1000, faults.Hang), false},
		"a pass, the network hangs":        {pass, only(faults.Hang, "net#"), false},
		"a pass, claimed in silence":       {pass, only(faults.HangReply, "used#"), false},
		"a pass, one of two":               {pass, every(2, faults.Hang), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := asProduction.newRig(t, siege)
			g.net.Plan = flapping(test.plan)
			g.fuseFails.Store(test.fuse)
			begun := time.Now()
			a := test.ask(g)
			took := time.Since(begun)
			if t := a.header.Get("Took"); t != "" { // without the solving
				took, _ = time.ParseDuration(t)
			}
			// With half of its answers a store may just do.
			if code := g.codeOf(a); a.status != http.StatusOK && a.status != http.StatusServiceUnavailable || !strings.HasSuffix(code, "_unavailable") {
				t.Errorf("%d %s", a.status, a.body)
			}
			check.That(t, took <= 4*time.Second, "answered after %s", took)
			half := strings.Contains(name, "one of")
			check.That(t, a.status != http.StatusOK || half, "%s", a.body)
			check.Equal(t, len(g.upstream.Calls()), 0, "calls upstream")
		})
	}
}

// A refusal that comes early leaves no read of the fuse under way: Lambda freezes the
// process then, and it would end as an old one.
func TestNothingIsReadAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ask  func(*rig) answer
		code string
	}{
		"the pool is empty": {func(g *rig) answer { return g.visit("203.0.113.7:1", "browser", question) }, "spend_ceiling_reached"},
		"the caller has left": {func(g *rig) answer {
			r := g.visitRequest("203.0.113.7:1", "browser", question)
			return g.do(r.WithContext(ended(r.Context())))
		}, "caller_left"},
		"the limits": {func(g *rig) answer { return g.do(g.request(http.MethodGet, "/v1/limits", "", "")) }, ""},
		"the limits, the caller has left": {func(g *rig) answer {
			r := g.request(http.MethodGet, "/v1/limits", "", "")
			return g.do(r.WithContext(ended(r.Context())))
		}, "store_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, siege, func(yaml string) string {
				return strings.Replace(yaml, `anonymous: {usd: "1.00", per: 1h}`, `anonymous: {usd: "0.006", per: 1h}`, 1)
			})
			for i := range 9 { // with a fresh fuse
				g.visit(fmt.Sprintf("198.51.%d.7:1", i), "browser", question)
			}
			g.freeze(4 * time.Second) // not for long: the pool refills
			g.fuseFails.Store(true)
			var reading, ended = make(chan struct{}), make(chan struct{})
			g.net.Plan = func(target string, body []byte) faults.Fault {
				if bytes.Contains(body, []byte(`{"S":"fuse"}`)) {
					close(reading)
					time.Sleep(300 * time.Millisecond)
					close(ended)
				}
				return faults.None
			}
			a := tt.ask(g)
			code := g.codeOf(a)
			check.That(t, code == tt.code, "%s, want %q", a.body, tt.code)
			select {
			case <-reading:
			default:
				t.Fatal("the fuse was not asked")
			}
			select {
			case <-ended:
			default:
				t.Error("the answer is there and the fuse is still being read")
			}
		})
	}
}

// ended is a context of a caller who has left.
func ended(ctx context.Context) context.Context {
	ctx, leave := context.WithCancel(ctx)
	leave()
	return ctx
}
