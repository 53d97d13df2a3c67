package alarm

import (
	"slices"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// factor4 compares with the past alone; both has a fixed bound, too.
var (
	factor4 = policy.Alarm{Factor: 4, Floor: price.Dollar}
	both    = policy.Alarm{Threshold: 8 * price.Dollar, Factor: 4, Floor: price.Dollar}
)

// hoursAgo records what an hour of the past cost.
func (g *rig) hoursAgo(hours, cents int) {
	g.t.Helper()
	g.spend(call{cents: cents, ago: time.Duration(hours)*time.Hour - time.Minute})
}

func TestThresholdAndWhere(t *testing.T) {
	t.Parallel()
	type past struct{ hoursAgo, cents int }
	for name, c := range map[string]struct {
		alarm policy.Alarm
		past  []past
		want  string
		from  string
		peak  string
	}{
		"fixed alone":                       {dollars8, []past{{50, 5000}}, "8", "fixed", ""},
		"first day, fixed":                  {both, []past{{20, 50}}, "8", "fixed, until there is a day of data", ""},
		"first day, no fixed":               {factor4, []past{{20, 50}}, "1", "the floor, until there is a day of data", ""},
		"nothing ever":                      {both, nil, "8", "fixed, until there is a day of data", ""},
		"second day":                        {both, []past{{25, 50}, {3, 100}}, "4", "4 x the highest normal hour", "1"},
		"what two days of four reached":     {factor4, []past{{700, 20}, {650, 100}, {100, 300}, {50, 90}}, "4", "4 x the highest normal hour", "1"},
		"highest of three days":             {factor4, []past{{700, 20}, {100, 300}, {50, 100}}, "12", "4 x the highest normal hour", "3"},
		"bounded by the fixed one":          {both, []past{{100, 300}}, "8", "the fixed bound; 4 x the highest normal hour is more", "3"},
		"not below the floor":               {both, []past{{100, 10}}, "1", "the floor; 4 x the highest normal hour is less", "0.1"},
		"older than 30 days":                {both, []past{{721, 900}, {60, 50}}, "2", "4 x the highest normal hour", "0.5"},
		"the last day does not count":       {factor4, []past{{100, 50}, {23, 190}, {10, 700}, {2, 2000}}, "2", "4 x the highest normal hour", "0.5"},
		"but it does when there is no more": {factor4, []past{{40, 50}, {10, 60}}, "2.4", "4 x the highest normal hour", "0.6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, c.alarm)
			for _, p := range c.past {
				g.hoursAgo(p.hoursAgo, p.cents)
			}
			if r := g.tick(); r.ThresholdUSD != c.want || r.ThresholdFrom != c.from || r.NormalPeakUSD != c.peak {
				t.Errorf("threshold %s (%s), peak %q, want %s (%s), %q", r.ThresholdUSD, r.ThresholdFrom, r.NormalPeakUSD, c.want, c.from, c.peak)
			}
		})
	}
}

func TestFirstDayIsNotWithoutAnAlarm(t *testing.T) {
	t.Parallel()
	for name, alarm := range map[string]policy.Alarm{"fixed": both, "floor": factor4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, alarm)
			g.spend(call{cents: 90})
			g.tick()
			g.wantPages()
			g.at(5)
			g.spend(call{cents: 900})
			g.tick()
			g.wantPages("opened")
		})
	}
}

// Yesterday's attack must not raise today's threshold.
func TestAttackDoesNotRaiseTheThreshold(t *testing.T) {
	t.Parallel()
	g := newRig(t, factor4)
	g.hoursAgo(60, 100)
	g.hoursAgo(50, 80)
	g.spend(call{cents: 90})
	if r := g.tick(); r.ThresholdUSD != "4" {
		t.Fatalf("threshold %s before", r.ThresholdUSD)
	}
	for minute := 30; minute <= 180; minute += 30 {
		g.at(minute)
		g.spend(call{cents: 3000})
		r := g.tick()
		check.Must(t, r.ThresholdUSD == "4" && r.State == "alarm", "minute %d: threshold %s, %s", minute, r.ThresholdUSD, r.State)
	}
	g.at(245)
	if r := g.tick(); r.Paged != "cleared" {
		t.Fatalf("it does not clear: %+v", r)
	}
	for _, days := range []int{1, 2, 3, 20, 27} {
		g.at(days*24*60 + 245)
		r := g.tick()
		check.That(t, r.ThresholdUSD == "4", "%d days later: threshold %s", days, r.ThresholdUSD)
	}
	g.at(2*24*60 + 250)
	g.spend(call{cents: 500})
	if r := g.tick(); r.Paged != "opened" {
		t.Errorf("the next attack: %+v", r)
	}
}

// What begins in the middle of an hour and is seen in the next one taints both.
func TestHoursInAlarm(t *testing.T) {
	t.Parallel()
	s := state{since: noon.Add(30 * time.Minute), past: []int64{hourOf(noon) - 721, hourOf(noon) - 720, hourOf(noon) - 30}}
	now := noon.Add(2 * time.Hour)
	first := hourOf(noon)
	cases := map[int64]bool{first - 720: false, first - 718: false, first - 30: true, first - 2: false, first - 1: true, first: true, first + 1: true, first + 2: true, first + 3: false}
	got := s.hoursInAlarm(now)
	for h, want := range cases {
		check.Equal(t, got[h], want, "hour %d", h-first)
	}
	ended := s.after(cleared, now, 0, 1)
	if want := []int64{first - 30, first - 1, first, first + 1, first + 2}; !slices.Equal(ended.past, want) {
		t.Errorf("kept %v, want %v", ended.past, want)
	}
	check.That(t, ended.since.IsZero() && ended.level == 0, "still %+v", ended)
	// However long it lasts, there is a bound, and it fits an item.
	s.since = noon.AddDate(-1, 0, 0)
	n := len(s.after(cleared, now, 0, 1).past)
	check.That(t, n >= 720 && n <= 722, "%d hours", n)
}

func TestLevels(t *testing.T) {
	t.Parallel()
	const most = price.Pico(1<<63 - 1)
	for _, c := range []struct {
		spend, threshold price.Pico
		want             int
	}{{0, 8, 0}, {8, 8, 0}, {9, 8, 1}, {15, 8, 1}, {16, 8, 2}, {31, 8, 2}, {32, 8, 4}, {most, 8, 4}, {most, most, 0}, {most, most / 2, 2}, {most, most - 1, 1}} {
		check.Equal(t, level(c.spend, c.threshold), c.want, "%d of %d: level", c.spend, c.threshold)
	}
	check.That(t, times(most/2, 4) == most && times(price.Dollar, 1.5) == 1_500_000_000_000, "times")
}

func TestBaselineOfHours(t *testing.T) {
	t.Parallel()
	hours := []ledger.Hour{
		{Start: noon.Add(-80 * time.Hour)}, // nobody called yet
		{Start: noon.Add(-20 * time.Hour), Amount: ledger.Amount{Calls: 1, Cost: 5}},
	}
	if b := newBaseline(hours, nil, noon); b.known {
		t.Errorf("%+v though the first call was 20 hours ago", b)
	}
	hours[0].Amount = ledger.Amount{Calls: 1, Cost: 3}
	check.Equal(t, newBaseline(hours, nil, noon), (baseline{true, 3, 1}), "newBaseline(hours, nil, noon)")
	if b := newBaseline(hours, map[int64]bool{hourOf(hours[0].Start): true}, noon); b.known {
		t.Errorf("%+v of an attack and 20 hours", b)
	}
}

// What is compared is not part of what it is compared with, on the second day either,
// when the hours just past do count.
func TestTheLastHourRaisesNoThreshold(t *testing.T) {
	t.Parallel()
	g := newRig(t, factor4)
	g.hoursAgo(30, 50)
	g.spend(call{cents: 250, ago: 10 * time.Minute})
	g.at(5) // the hour that it fell in is closed
	r := g.tick()
	check.That(t, r.ThresholdUSD == "2" && r.Paged == "opened", "threshold %s, paged %q", r.ThresholdUSD, r.Paged)
}
