package alarm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

var withFuse = policy.Alarm{Threshold: 8 * price.Dollar, Fuse: "challenge", RepeatEvery: 100 * time.Hour}

// ofARun is how many metrics a run of the rig's policy puts.
const ofARun = 7

// wantOutdated wants a run that changes nothing and puts none of so many metrics.
func (g *rig) wantOutdated(h *Handler, metrics int) {
	g.t.Helper()
	r, err := h.Run(context.Background())
	check.That(g.t, err == nil && r.Outdated && r.Paged == "" && r.State == "alarm", "the older run: %+v, %v", r, err)
	check.Equal(g.t, len(g.inbox.Metrics()), metrics, "metrics, those of the newer runs")
	check.That(g.t, strings.Contains(g.log.String(), `"outdated":true`), "the log does not say that the run was outdated")
	g.wantPages("opened")
	g.wantFuse(fuse.Challenge, "alarm")
}

// The attack began in the last 3 seconds. A run whose clock is as much behind does not
// see it.
func TestRunWhoseClockIsBehind(t *testing.T) {
	t.Parallel()
	g := newRig(t, withFuse)
	g.spend(call{cents: 900})
	g.tick()
	g.wantPages("opened")
	g.wantOutdated(g.processOn(g.store, g.published, func() time.Time { return g.Now().Add(-3 * time.Second) }), ofARun)
	g.at(5)
	r := g.tick()
	check.That(t, !r.Outdated && r.State == "alarm", "the next tick: %+v", r)
}

// slow is a ledger whose sums take so long that something happens meanwhile.
type slow struct {
	Ledger
	meanwhile func()
}

func (s slow) Sum(ctx context.Context, from, to time.Time) (ledger.Summary, error) {
	sum, err := s.Ledger.Sum(ctx, from, to)
	s.meanwhile()
	return sum, err
}

// A sum takes 20 seconds, and a run that began after it pages meanwhile.
func TestSumThatTookLong(t *testing.T) {
	t.Parallel()
	g := newRig(t, withFuse)
	h := g.process()
	h.Ledger = slow{g.ledger, func() {
		g.Advance(10 * time.Second)
		g.spend(call{cents: 900})
		g.tick()
		g.Advance(10 * time.Second)
	}}
	g.wantOutdated(h, ofARun)
}

// Nothing was to be told, but the run has seen the incident go on.
func TestOlderRunAfterOneThatHadNothingToTell(t *testing.T) {
	t.Parallel()
	g := newRig(t, withFuse)
	g.spend(call{cents: 900})
	g.tick()
	g.at(61) // what opened it is out of the window; more has come since
	g.spend(call{cents: 1000})
	g.tick()
	g.wantOutdated(g.processOn(g.store, g.published, func() time.Time { return g.Now().Add(-3 * time.Second) }), 2*ofARun)
}

// A clock that was an hour ahead once must not silence the alarm for an hour.
func TestClockThatWasFarAhead(t *testing.T) {
	t.Parallel()
	g := newRig(t, withFuse)
	g.at(60)
	g.tick()
	s, err := g.handler.readState(t.Context())
	check.OK(t, err)
	s.claimed = g.Now().Add(claimFor) // and then its run died
	if ok, err := g.handler.writeState(t.Context(), &s); !ok || err != nil {
		t.Fatal(ok, err)
	}
	g.at(0)
	g.spend(call{cents: 900})
	r := g.tick()
	check.That(t, !r.Outdated && r.State == "alarm", "%+v", r)
	g.wantPages("opened")
}

func TestOverlapOfRuns(t *testing.T) {
	t.Parallel()
	for seen, want := range map[time.Duration]bool{
		-time.Hour: false, -time.Microsecond: false, 0: false, 300 * time.Nanosecond: false, time.Microsecond: true, 20 * time.Second: true,
		overlap: true, overlap + time.Microsecond: false,
	} {
		check.Equal(t, (state{seen: noon.Add(seen).Truncate(seenUnit)}).sawMoreThan(noon), want, "%s ahead", seen)
	}
	check.That(t, !(state{}).sawMoreThan(noon), "an item of before has seen more")
}

// saw is a ledger of an hour that cost so much.
type saw price.Pico

func (s saw) Sum(context.Context, time.Time, time.Time) (ledger.Summary, error) {
	return ledger.Summary{Total: ledger.Amount{Calls: 1, Cost: price.Pico(s)}}, nil
}

func (saw) Hours(context.Context, time.Time, time.Time) ([]ledger.Hour, error) {
	return nil, errors.New("there is no factor")
}

const (
	calm   = saw(7 * price.Dollar / 10)
	attack = saw(9 * price.Dollar)
)

// Two runs overlap, one a little older than the other: one of them stands still before
// each of its requests to the store or to SNS, while the other runs from end to end.
func TestOverlappingRuns(t *testing.T) {
	t.Parallel()
	for _, began := range []saw{calm, attack} {
		for _, older := range []saw{calm, attack} {
			for _, newer := range []saw{calm, attack} {
				for _, stands := range []string{"older", "newer"} {
					t.Run(fmt.Sprintf("%s, then %s, then %s, the %s stands still", name(began), name(older), name(newer), stands), func(t *testing.T) {
						t.Parallel()
						step := 0
						for overlapAt(t, began, older, newer, stands, step) {
							step++
						}
						check.That(t, step >= 3, "only %d steps", step)
					})
				}
			}
		}
	}
}

func name(s saw) string {
	if s == calm {
		return "calm"
	}
	return "attack"
}

// overlapAt lets one run stand still before its request number step, and reports
// whether it has as many.
func overlapAt(t *testing.T, began, older, newer saw, stands string, step int) (reached bool) {
	t.Helper()
	g := newRig(t, withFuse)
	g.handler.Ledger = began
	g.tick()
	g.at(5)

	// Each request takes a second. The clock of an older run that begins last is behind.
	behind := time.Duration(0)
	if stands == "newer" {
		behind = -30 * time.Second
	}
	first, second, clock := older, newer, time.Duration(0)
	if stands == "newer" {
		first, second, clock = newer, older, behind
	}
	guest := g.processOn(nil, nil, func() time.Time { return g.Now().Add(clock) })
	guest.Ledger = second
	requests, paging := 0, false
	net := &faults.Transport{Plan: func(string, []byte) faults.Fault {
		if requests == step {
			reached = true
			s, err := g.handler.readState(context.Background())
			check.That(t, err == nil, "%v", err)
			paging = s.othersPage(g.Now())
			g.Advance(time.Second)
			if _, err := guest.Run(context.Background()); err != nil {
				t.Errorf("step %d: the run that came between: %v", step, err)
			}
		}
		requests++
		g.Advance(time.Second)
		return faults.None
	}}
	host := g.processOn(net, net, g.Now)
	host.Ledger = first
	g.Advance(time.Second)
	if _, err := host.Run(context.Background()); err != nil {
		t.Errorf("step %d: the run that stood still: %v", step, err)
	}
	if !reached {
		return false
	}

	shows := func(when string, want saw) {
		t.Helper()
		s, err := g.handler.readState(context.Background())
		check.OK(t, err)
		if incident := !s.since.IsZero(); incident != (want == attack) {
			t.Errorf("step %d, %s: an incident is %t; %v", step, when, incident, g.pages())
		}
		wanted := fuse.Closed
		if want == attack {
			wanted = fuse.Challenge
		}
		if f, err := g.fuse.Current(context.Background()); err != nil || f.State != wanted {
			t.Errorf("step %d, %s: the fuse is %+v, %v, want %s; %v", step, when, f, err, wanted, g.pages())
		}
	}
	// What the newer run saw holds; but a page of the older one that was under way goes
	// out first, and the next tick does the rest.
	if !paging || stands == "newer" {
		shows("afterwards", newer)
	}
	g.at(10)
	g.handler.Ledger = newer
	g.tick()
	shows("at the next tick", newer)

	open := false
	for _, event := range g.pages() {
		if event == "opened" == open || event != "opened" && event != "cleared" {
			t.Errorf("step %d: pages %v", step, g.pages())
		}
		open = event == "opened"
	}
	return true
}
