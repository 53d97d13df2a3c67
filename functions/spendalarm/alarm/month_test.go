package alarm

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// product is what hours of an honest product cost, in cents.
type product func(time.Time) int

// daily has a curve of the day, less at weekends, and some noise. Its peak is 100.
func daily(t time.Time) int {
	cents := max(5, 100-12*max(t.Hour()-14, 14-t.Hour()))
	if d := t.Weekday(); d == time.Saturday || d == time.Sunday {
		cents /= 10
	}
	return cents - int(t.Unix()/3600%3)
}

// mondays is daily, but Monday at 9 is ten times the rest of the week.
func mondays(t time.Time) int {
	if t.Weekday() == time.Monday && t.Hour() == 9 {
		return 1000
	}
	return daily(t)
}

// nightly does all its work in one hour of the night.
func nightly(t time.Time) int {
	if t.Hour() == 2 {
		return 500
	}
	return 0
}

// weekly is used once a week.
func weekly(t time.Time) int {
	if t.Weekday() == time.Friday && t.Hour() == 16 {
		return 300
	}
	return 0
}

// hoursOf are what spendalarm knows of a product at now, since it began.
func (p product) hoursOf(now time.Time, age time.Duration) []ledger.Hour {
	var hours []ledger.Hour
	for h := now.Add(-past).Truncate(time.Hour); !h.Add(time.Hour).After(now.Add(-window)); h = h.Add(time.Hour) {
		one := ledger.Hour{Start: h}
		if cents := p(h); cents > 0 && !h.Before(now.Add(-age)) {
			one.Amount = ledger.Amount{Calls: int64(cents), Cost: price.Pico(cents) * price.Dollar / 100}
		}
		if !h.Before(now.Add(-past)) {
			hours = append(hours, one)
		}
	}
	return hours
}

// outlier makes an hour cost a thousand dollars.
func outlier(h *ledger.Hour) { h.Amount = ledger.Amount{Calls: 1, Cost: 1000 * price.Dollar} }

func cents(p price.Pico) int { return int(p / (price.Dollar / 100)) }

// After a month no two hours move the threshold, wherever they lie, nor does anything
// that lasts a day; and at no hour of the week does an honest product page.
func TestMonthOfAProduct(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 9))
	for name, c := range map[string]struct {
		product product
		normal  int // the least that the highest normal hour may be, and the most
		most    int
	}{
		"daily":   {daily, 98, 100},
		"mondays": {mondays, 1000, 1000},
		"nightly": {nightly, 500, 500},
	} {
		for hour := range 7 * 24 {
			now := noon.Add(time.Duration(hour)*time.Hour + 7*time.Minute)
			hours := c.product.hoursOf(now, past)
			clean := newBaseline(hours, nil, now)
			got := cents(clean.highest)
			check.Must(t, clean.known && got >= c.normal && got <= c.most, "%s at %s: %+v", name, now, clean)
			limit := newThreshold(&policy.Alarm{Factor: 4, Floor: price.Dollar}, clean).amount
			spend := price.Pico(2*c.product(now)) * price.Dollar / 100
			check.That(t, level(spend, limit) <= 0, "%s at %s: twice an ordinary hour is above the threshold %s", name, now, limit)
			if hour%8 > 0 {
				continue
			}
			moved := func(what string, from, to, other int) {
				t.Helper()
				dirty := append([]ledger.Hour(nil), hours...)
				for i := from; i < to; i++ {
					outlier(&dirty[i])
				}
				outlier(&dirty[other])
				if b := newBaseline(dirty, nil, now); cents(b.highest) < c.normal || cents(b.highest) > c.most {
					t.Errorf("%s at %s: %s moved the highest normal hour from %s to %s", name, now, what, clean.highest, b.highest)
				}
			}
			for range 20 {
				i := random.IntN(len(hours) - 1)
				moved("one hour", i, i, i)
				moved("two hours in a row", i, i+1, i+1)
				moved("two hours", i, i+1, random.IntN(len(hours)))
			}
			for range 10 {
				i := random.IntN(len(hours) - 24)
				moved("a whole day", i, i+24, i)
			}
		}
	}
}

// What is used once a week is normal with the first time, and stays so.
func TestOnceAWeek(t *testing.T) {
	t.Parallel()
	for days := 2; days <= 35; days++ {
		now := noon.Add(time.Duration(days) * day)
		began := noon.Add(-3*day + 4*time.Hour) // a Friday at 16
		b := product(weekly).hoursOf(now, now.Sub(began))
		got := newBaseline(b, nil, now)
		check.That(t, got.known && cents(got.highest) == 300, "after %d days: %+v", days, got)
	}
}

func TestGrowthIsFollowedWithinDays(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC) // a Tuesday: three times as much as before
	growing := product(func(h time.Time) int {
		if h.Before(began) {
			return daily(h)
		}
		return 3 * daily(h)
	})
	for hours := range 24 * 10 {
		now := began.Add(time.Duration(hours) * time.Hour)
		b := newBaseline(growing.hoursOf(now, past), nil, now)
		spend := price.Pico(growing(now)) * price.Dollar / 100
		check.That(t, level(spend, times(b.highest, 4)) <= 0, "%s: growth pages", now)
		followed := cents(b.highest) > 290
		check.That(t, followed == (hours >= 3*24+15), "%d hours after it grew the highest normal hour is %s", hours, b.highest)
	}
}

// Little data. The product began on a Friday; an hour of a thousand dollars lies in its
// first days.
func TestFirstDays(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 6, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		days     int
		outliers []int // hours since it began
		known    bool
		least    int
		most     int
	}{
		{0, nil, false, 0, 0},
		{1, nil, true, 98, 100}, // Friday
		{2, nil, true, 98, 100},
		{3, nil, true, 98, 100},
		{3, []int{30}, true, 100_000, 100_000}, // nobody can tell it from a busy hour yet
		{4, []int{5}, true, 70, 100},           // Monday until noon
		{5, []int{5}, true, 98, 100},
		{5, []int{70}, true, 98, 100},
		{7, nil, true, 98, 100},
		{7, []int{5}, true, 98, 100},
		{8, []int{5, 40}, true, 98, 100},
		{8, []int{40, 70}, true, 98, 100},
		{14, []int{40, 41, 42, 43, 44, 80}, true, 98, 100},
	} {
		now := began.Add(time.Duration(c.days)*day + 5*time.Hour)
		hours := product(daily).hoursOf(now, now.Sub(began))
		for i := range hours {
			for _, o := range c.outliers {
				if hours[i].Start.Equal(began.Add(time.Duration(o) * time.Hour)) {
					outlier(&hours[i])
				}
			}
		}
		b := newBaseline(hours, nil, now)
		got := cents(b.highest)
		check.That(t, b.known == c.known && got >= c.least && got <= c.most, "after %d days with outliers %v: %+v", c.days, c.outliers, b)
	}
	// The first Monday of a product that began on a Friday does not page.
	for hours := range 24 * 10 {
		now := began.Add(time.Duration(hours) * time.Hour)
		large := product(func(h time.Time) int { return 50 * daily(h) })
		b := newBaseline(large.hoursOf(now, now.Sub(began)), nil, now)
		if spend := price.Pico(large(now)) * price.Dollar / 100; b.known && level(spend, max(price.Dollar, times(b.highest, 4))) > 0 {
			t.Errorf("%s pages: %s is above 4 x %s", now.Format("Mon 15:04"), spend, b.highest)
		}
	}
}

// The same at the handler, on a month in the ledger: two hours that nobody saw do not
// set the threshold, and the next Monday's peak does not page.
func TestMonthAtTheHandler(t *testing.T) {
	t.Parallel()
	g := newRig(t, factor4)
	g.Set(time.Date(2026, 11, 30, 8, 55, 0, 0, time.UTC)) // a Monday
	monday := time.Date(2026, 11, 2, 9, 30, 0, 0, time.UTC)
	for d := range 28 {
		cents := 90 + d%3
		if d%7 == 0 {
			cents = 1000
		}
		g.spend(call{cents: cents, ago: g.Now().Sub(monday.Add(time.Duration(d) * day))})
	}
	for _, ago := range []time.Duration{60 * time.Hour, 61 * time.Hour} {
		g.spend(call{cents: 90_000, ago: ago})
	}
	r := g.tick()
	check.That(t, r.ThresholdUSD == "40" && r.NormalPeakUSD == "10" && r.ThresholdFrom == "4 x the highest normal hour",
		"threshold %s (%s), peak %s", r.ThresholdUSD, r.ThresholdFrom, r.NormalPeakUSD)
	g.Advance(time.Hour)
	g.spend(call{cents: 1100, ago: 10 * time.Minute})
	if r := g.tick(); r.Paged != "" || r.State != "normal" {
		t.Errorf("the busy hour of a Monday pages: %+v", r)
	}
	g.spend(call{cents: 3500})
	if r := g.tick(); r.Paged != "opened" {
		t.Errorf("an attack: %+v", r)
	}
}
