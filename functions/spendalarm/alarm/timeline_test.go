package alarm

import (
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// step is a tick, and what was spent just before it.
type step struct {
	minute int
	cents  int
	paged  string
	level  int
}

func TestTimelines(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"crossing, staying, falling below": {
			{0, 800, "", 0}, // at the threshold is not above it
			{5, 1, "opened", 1},
			{5, 0, "", 1}, // the schedule came twice
			{10, 0, "", 1},
			{59, 0, "", 1},
			{64, 0, "cleared", 0},
			{69, 0, "", 0},
		},
		"growing": {
			{0, 900, "opened", 1},
			{5, 600, "", 1},
			{10, 101, "escalated", 2}, // 16.01
			{15, 1500, "", 2},
			{20, 100, "escalated", 4}, // 32.01
			{25, 9900, "", 4},
			{30, 0, "", 4},
		},
		"at four times at once": {
			{0, 3200, "opened", 4},
			{5, 0, "", 4},
		},
		"falling to the first level and growing again says nothing new": {
			{0, 1700, "opened", 2},
			{55, 850, "", 2},
			{61, 0, "", 2},
			{62, 800, "", 2}, // 16.50, which it had been before
			{63, 1600, "escalated", 4},
		},
		"flapping around the threshold": {
			{0, 810, "opened", 1},
			{60, 790, "", 1}, // 7.90: below, but not far enough
			{65, 20, "", 1},
			{120, 700, "", 1}, // 7.20
			{125, 110, "", 1}, // 8.10: above again
			{181, 620, "", 1}, // 7.30
			{186, 0, "cleared", 0},
			{187, 170, "", 0}, // 7.90: coming back needs all of the threshold
			{188, 20, "opened", 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar, RepeatEvery: 100 * time.Hour})
			var pages []string
			for i, s := range steps {
				g.at(s.minute)
				if s.cents > 0 {
					g.spend(call{cents: s.cents})
				}
				r := g.tick()
				check.Must(t, r.Paged == s.paged && r.Level == s.level,
					"step %d, minute %d: spent %s, paged %q at level %d, want %q at level %d", i, s.minute, r.SpendUSD, r.Paged, r.Level, s.paged, s.level)
				if s.paged != "" {
					pages = append(pages, s.paged)
				}
			}
			g.wantPages(pages...)
		})
	}
}

func TestSinceIsWhenItWasFirstSeen(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	for _, minute := range []int{0, 5, 30} {
		g.at(minute)
		r := g.tick()
		check.That(t, r.State == "alarm" && r.Since != nil && r.Since.Equal(noon), "minute %d: %s since %v", minute, r.State, r.Since)
	}
	g.at(61)
	if r := g.tick(); r.State != "normal" || r.Since != nil || r.Paged != "cleared" {
		t.Errorf("afterwards: %+v", r)
	}
}

func TestWithoutAnAlarmItOnlyMeasures(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.policy.Alarm = nil
	g.spend(call{cents: 100000})
	r := g.tick()
	check.That(t, r.State == "off" && r.SpendUSD == "1000", "%+v", r)
	g.wantPages()
	check.That(t, len(g.inbox.Metrics()) != 0, "no metrics")
}

func TestRepeatEveryIsTheOwners(t *testing.T) {
	t.Parallel()
	g := newRig(t, policy.Alarm{Threshold: price.Dollar, RepeatEvery: 10 * time.Minute})
	g.spend(call{cents: 150})
	for minute := 0; minute <= 30; minute += 5 {
		g.at(minute)
		g.tick()
	}
	g.wantPages("opened", "repeated", "repeated", "repeated")
}

// An owner for whom this much is normal raises the threshold, and it is over.
func TestRaisedThresholdClears(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	g.tick()
	g.policy.Alarm.Threshold = 12 * price.Dollar
	g.at(5)
	g.tick()
	g.wantPages("opened", "cleared")
}
