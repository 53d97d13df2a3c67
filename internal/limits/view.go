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
	return View{l.Name, l.Unit, l.Capacity, int64(l.Period.Seconds()), LeftOf(s)}
}

// LeftOf shows what is left.
func LeftOf(s bucket.Status) Left {
	return Left{s.Remaining, ceilSeconds(s.FullIn), ceilSeconds(s.NextIn)}
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
