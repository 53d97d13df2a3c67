package alarm

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

const (
	day = 24 * time.Hour
	// past is how far back the baseline reaches.
	past = 30 * day
)

// baseline is the highest normal hour: the most that an hour cost on several different
// days; the zero value: there is no day of data.
type baseline struct {
	known   bool
	highest price.Pico
	days    int // that had an hour of at least this
}

// enoughDays is on how many different days an hour must have cost that much to be
// normal. With 3 of them no two hours, wherever they lie, and nothing that lasts a day
// makes a baseline, while a busy hour that comes each week is there four times in 30
// days.
const enoughDays = 3

// newBaseline looks at the hours that are not left out. There is a day of data when
// the first of them with a call began a day ago. When that is two days ago, the last
// day is left out too: what is spent today raises no threshold today.
func newBaseline(hours []ledger.Hour, leftOut map[int64]bool, now time.Time) baseline {
	var normal []ledger.Hour
	for _, h := range hours {
		if !leftOut[hourOf(h.Start)] && (h.Calls > 0 || normal != nil) {
			normal = append(normal, h)
		}
	}
	if len(normal) == 0 || normal[0].Start.After(now.Add(-day)) {
		return baseline{}
	}
	dayOld := !normal[0].Start.After(now.Add(-2 * day))
	peaks := map[time.Time]price.Pico{} // of the days (UTC) with a call
	for _, h := range normal {
		if h.Calls > 0 && (!dayOld || !h.Start.Add(time.Hour).After(now.Add(-day))) {
			date := h.Start.Truncate(day)
			peaks[date] = max(peaks[date], h.Cost)
		}
	}
	days := daysOf(len(peaks))
	descending := slices.Sorted(maps.Values(peaks))
	slices.Reverse(descending)
	return baseline{known: true, highest: descending[days-1], days: days}
}

// daysOf is how many of some days with calls must agree: two from the fourth day on,
// enoughDays from the eighth. With fewer a product that began before a weekend would
// be held against that when it is Monday.
func daysOf(days int) int { return min(enoughDays, 1+days/4) }

// threshold is above what spending is abnormal, and why.
type threshold struct {
	amount price.Pico
	why    string // for a person
	raise  string // the setting that raises it
}

func newThreshold(a *policy.Alarm, b baseline) threshold {
	fixed := threshold{a.Threshold, "fixed", "alarm.threshold_usd"}
	if a.Factor == 0 {
		return fixed
	}
	if !b.known {
		if a.Threshold > 0 {
			fixed.why = "fixed, until there is a day of data"
			return fixed
		}
		return threshold{a.Floor, "the floor, until there is a day of data", "alarm.floor_usd"}
	}
	factored := times(b.highest, a.Factor)
	t := threshold{factored, fmt.Sprintf("%v x the highest normal hour", a.Factor), "alarm.floor_usd"}
	if factored < a.Floor {
		t.amount, t.why = a.Floor, fmt.Sprintf("the floor; %v x the highest normal hour is less", a.Factor)
	}
	if a.Threshold > 0 && a.Threshold < t.amount {
		fixed.why = fmt.Sprintf("the fixed bound; %v x the highest normal hour is more", a.Factor)
		return fixed
	}
	return t
}

// times is p x factor. It goes through floating point, which is exact to far below a
// cent; beyond int64 it is the largest amount.
func times(p price.Pico, factor float64) price.Pico {
	if x := float64(p) * factor; x < math.MaxInt64 {
		return price.Pico(x)
	}
	return math.MaxInt64
}

// pastHours are what the baseline is made of, if the policy has one. Without them the
// fixed number counts, if there is one, and the error is told.
func (h *Handler) pastHours(ctx context.Context, now time.Time) ([]ledger.Hour, error) {
	if h.Policy.Alarm.Factor == 0 {
		return nil, nil
	}
	// Up to the window: what is compared is not part of what it is compared with.
	hours, err := h.Ledger.Hours(ctx, now.Add(-past), now.Add(-window))
	if err != nil {
		return nil, fmt.Errorf("reading the past hours: %w", err)
	}
	return hours, nil
}

// hourOf numbers clock hours since 1970.
func hourOf(t time.Time) int64 { return t.Unix() / 3600 }
