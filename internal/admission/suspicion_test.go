package admission

import (
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Each sign of a script halves the share of its limits that a client has without a
// challenge. Who is known has no such share.
func TestSoftShare(t *testing.T) {
	t.Parallel()
	const at = 0.8
	for name, tt := range map[string]struct {
		change func(*rig, *Caller, *Call)
		want   float64
	}{
		"nothing":              {func(*rig, *Caller, *Call) {}, at},
		"jitter":               {func(_ *rig, c *Caller, _ *Call) { c.Jitter = 0.9 }, at * 0.9},
		"never all":            {func(_ *rig, c *Caller, _ *Call) { c.Jitter = 1.25 }, 0.999},
		"looks like a script":  {func(_ *rig, c *Caller, _ *Call) { c.Scripted = true }, at / 2},
		"too long an input":    {func(_ *rig, _ *Caller, c *Call) { c.TooMuch = true }, at / 2},
		"a long conversation":  {func(_ *rig, _ *Caller, c *Call) { c.Cut.Characters = 500 }, at},
		"as long as it may be": {func(_ *rig, _ *Caller, c *Call) { c.Input = 2_000 }, at / 2},
		"a busy network": {func(g *rig, c *Caller, _ *Call) {
			for _, client := range []string{"CLIENTBB", "CLIENTCC", "CLIENTDD"} {
				g.use(g.mustAdmit(g.visitor(c.ID, client), "open", 10), 3_400)
			}
		}, at / 2},
		"a pool that runs low": {func(g *rig, _ *Caller, _ *Call) { g.drain("anonymous") }, at / 2},
		"all of it": {func(g *rig, caller *Caller, c *Call) {
			caller.Scripted, c.TooMuch = true, true
			g.drain("anonymous")
		}, at / 8},
		"a pass":             {func(_ *rig, c *Caller, _ *Call) { c.Kind = limits.Pass }, 0},
		"a user":             {func(g *rig, c *Caller, _ *Call) { *c = g.user("ann") }, 0},
		"without challenges": {func(g *rig, _ *Caller, _ *Call) { g.Challenges = false }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			caller := g.visitor("N", "CLIENTAA")
			call := g.call(caller, "open", 10)
			tt.change(g, &caller, call)
			if got := g.softShare(caller, call); got < tt.want-1e-9 || got > tt.want+1e-9 {
				t.Errorf("%g, want %g", got, tt.want)
			}
		})
	}
}

// Whoever asks how they stand is told of a challenge exactly when the next call would be.
func TestStanding(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		caller func(*rig) Caller
		before func(*rig, Caller)
		state  fuse.State
		due    bool
	}{
		"nothing yet":    {state: fuse.Closed},
		"within a share": {before: func(g *rig, c Caller) { g.use(g.mustAdmit(c, "open", 10), 3_900) }, state: fuse.Closed},
		"beyond it":      {before: func(g *rig, c Caller) { g.use(g.mustAdmit(c, "open", 10), 4_100) }, state: fuse.Closed, due: true},
		"by the fuse":    {before: func(g *rig, _ Caller) { g.setFuse(fuse.Challenge, g.now().AddDate(0, 0, 1)) }, state: fuse.Challenge, due: true},
		"not of a pass": {caller: func(g *rig) Caller { return Caller{Kind: limits.Pass, ID: "P", Tier: g.Policy.Tiers[policy.Anonymous]} },
			before: func(g *rig, _ Caller) { g.setFuse(fuse.Challenge, g.now().AddDate(0, 0, 1)) }, state: fuse.Challenge},
		"cut off, which is another thing": {before: func(g *rig, _ Caller) { g.setFuse(fuse.AnonymousOff, g.now().AddDate(0, 0, 1)) }, state: fuse.AnonymousOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			caller := g.visitor("N", "CLIENTAA")
			if tt.caller != nil {
				caller = tt.caller(g)
			}
			if tt.before != nil {
				tt.before(g, caller)
			}
			g.advance(4e9) // what is known of the fuse is old
			s, refusal := g.Standing(t.Context(), caller)
			check.That(t, refusal == nil && s.Fuse == tt.state && s.ChallengeDue == tt.due && len(s.Limits) >= 2, "%+v, %+v", s, refusal)
			if _, r := g.admit(caller, "open", 10); (r != nil && r.Kind == ChallengeDue) != tt.due {
				t.Errorf("and the next call: %+v", r)
			}
		})
	}
}
