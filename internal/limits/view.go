package limits

import (
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// View is a limit and its state as callers see it.
type View struct {
	Name     string      `json:"name"`
	Unit     policy.Unit `json:"unit"`
	Capacity int64       `json:"capacity"`
	Period   int64       `json:"period_seconds"`
	Left
}

// Left is what is left of a limit. Waits are rounded up.
type Left struct {
	Remaining  int64 `json:"remaining"`
	Reset      int64 `json:"reset_seconds"`       // until it is full again
	RetryAfter int64 `json:"retry_after_seconds"` // until at least 1 fits
}

// ViewOf shows a limit in a state.
func ViewOf(l Limit, s bucket.Status) View {
	return View{l.Name, l.Unit, l.Shown(l.Capacity), int64(l.Period.Seconds()), LeftOf(l, s)}
}

// LeftOf shows what is left.
func LeftOf(l Limit, s bucket.Status) Left {
	return Left{l.Shown(s.Remaining), ceilSeconds(s.FullIn), ceilSeconds(l.nextIn(s))}
}

// nextIn is when at least 1 fits, in the limit's unit: for money that is later than
// when 1 of the bucket's does.
func (l Limit) nextIn(s bucket.Status) time.Duration {
	if scale(l.Unit) == 1 || l.Shown(s.Remaining) > 0 || l.Shown(l.Capacity) == 0 {
		return s.NextIn
	}
	one := time.Duration(int64(l.Period) / l.Shown(l.Capacity))
	return max(s.NextIn, s.FullIn-l.Period+one)
}

// ceilSeconds rounds up. d may be the longest Duration that there is.
func ceilSeconds(d time.Duration) int64 {
	whole := d / time.Second
	if d%time.Second > 0 {
		whole++
	}
	return int64(whole)
}
