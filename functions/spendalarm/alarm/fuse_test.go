package alarm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// sets is an alarm that sets the fuse.
var sets = policy.Alarm{Threshold: 8 * price.Dollar, Fuse: "challenge"}

const operator = "arn:aws:iam::123456789012:user/ops"

// operates sets the fuse as an operator does, for a time or, if that is 0, for good.
func (g *rig) operates(state fuse.State, d time.Duration) {
	g.t.Helper()
	s := fuse.Setting{State: state, SetBy: operator}
	if d > 0 {
		s.Until = g.Now().Add(d)
	}
	check.OK(g.t, g.fuse.Set(context.Background(), s))
}

func TestFuseIsSetRenewedAndReleased(t *testing.T) {
	t.Parallel()
	g := newRig(t, sets)
	g.tick()
	g.wantFuse(fuse.Closed, "")
	g.spend(call{cents: 900})
	if r := g.tick(); r.Fuse != "challenge" || r.FuseSetBy != "alarm" || r.FuseUntil == nil || !r.FuseUntil.Equal(noon.Add(time.Hour)) {
		t.Errorf("%+v", r)
	}
	g.at(50)
	g.spend(call{cents: 900})
	if r := g.tick(); r.FuseUntil == nil || !r.FuseUntil.Equal(noon.Add(110*time.Minute)) {
		t.Errorf("not renewed: %+v", r)
	}
	g.at(100)
	g.wantFuse(fuse.Challenge, "alarm")
	g.at(111)
	if r := g.tick(); r.Paged != "cleared" || r.Fuse != "closed" {
		t.Errorf("%+v", r)
	}
	g.wantFuse(fuse.Closed, "alarm")
	g.at(200) // and again
	g.spend(call{cents: 900})
	g.tick()
	g.wantFuse(fuse.Challenge, "alarm")
}

func TestFuseEndsWhenNobodyTendsIt(t *testing.T) {
	t.Parallel()
	g := newRig(t, sets)
	g.spend(call{cents: 900})
	g.tick()
	g.at(61)
	g.wantFuse(fuse.Closed, "")
}

func TestFuseIsNotTouchedUnlessConfigured(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	g.tick()
	g.wantFuse(fuse.Closed, "")
	m := g.inbox.Messages()[0].Message
	check.That(t, strings.Contains(m, "The fuse is closed: all callers are served."), "message:\n%s", m)
}

func TestOperatorsFuseIsNotOverridden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state fuse.State
		d     time.Duration
	}{
		"weaker":          {fuse.Challenge, 0},
		"stronger":        {fuse.Open, 0},
		"closed for 3h":   {fuse.Closed, 3 * time.Hour},
		"anonymous_off":   {fuse.AnonymousOff, 3 * time.Hour},
		"open, for years": {fuse.Open, 99999 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar, Fuse: "anonymous_off"})
			g.operates(c.state, c.d)
			g.at(10)
			g.spend(call{cents: 900})
			if r := g.tick(); r.Paged != "opened" || r.Fuse != string(c.state) {
				t.Errorf("%+v", r)
			}
			g.wantFuse(c.state, operator)
			g.at(71)
			if r := g.tick(); r.Paged != "cleared" {
				t.Errorf("%+v", r)
			}
			g.wantFuse(c.state, operator)
		})
	}
}

// An operator who closes the fuse during an incident is obeyed until the next one.
func TestOperatorClosesDuringAnIncident(t *testing.T) {
	t.Parallel()
	g := newRig(t, sets)
	g.spend(call{cents: 900})
	g.tick()
	g.at(2)
	g.operates(fuse.Closed, 0)
	for _, minute := range []int{5, 10, 59} {
		g.at(minute)
		g.spend(call{cents: 900}) // it escalates, too
		g.tick()
		g.wantFuse(fuse.Closed, operator)
	}
	g.at(130)
	g.tick()
	g.wantFuse(fuse.Closed, operator)
	g.at(200)
	g.spend(call{cents: 900})
	r := g.tick()
	check.That(t, r.Paged == "opened", "%+v", r)
	g.wantFuse(fuse.Challenge, "alarm")
}

func TestOperatorsFuseEndsDuringAnIncident(t *testing.T) {
	t.Parallel()
	g := newRig(t, sets)
	g.operates(fuse.Open, 20*time.Minute)
	g.spend(call{cents: 900})
	g.tick()
	g.at(15)
	g.tick()
	g.wantFuse(fuse.Open, operator)
	g.at(20)
	g.tick()
	g.wantFuse(fuse.Challenge, "alarm")
}
