package limits

import (
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// View is a limit and its state on the wire.
type View struct {
	Name     string      `json:"name"`
	Unit     policy.Unit `json:"unit"`
	Capacity int64       `json:"capacity"`
	Period   int64       `json:"period_seconds"` // see Window
	Left
}

// Left is what is left of a limit. Waits are rounded up.
type Left struct {
	Remaining  int64 `json:"remaining"`
	Reset      int64 `json:"reset_seconds"`       // until it is full again
	RetryAfter int64 `json:"retry_after_seconds"` // until at least 1 fits
}

// Seen is a limit in a state, as its caller sees it. Amounts are in the limit's unit.
type Seen struct {
	Limit
	State bucket.Status
	// Ends is how long it is until the limit ends with the pass that has it; 0: it is no
	// pass's, or that is not known.
	Ends time.Duration
}

// Remaining is the most that fits.
func (s Seen) Remaining() int64 { return s.Shown(s.State.Remaining) }

// FullIn is how long it is until all of the limit is there; 0 if it is.
func (s Seen) FullIn() time.Duration { return s.within(s.State.FullIn) }

// MoreIn is how long it is until more than Remaining fits; 0 if all of the limit is there.
func (s Seen) MoreIn() time.Duration {
	return s.within(s.State.FitsIn((s.Remaining() + 1) * scale(s.Unit)))
}

// nextIn is when at least 1 fits.
func (s Seen) nextIn() time.Duration {
	if s.Shown(s.Capacity) == 0 {
		return s.State.NextIn // that of the bucket: of what is shown nothing ever does
	}
	return s.within(s.State.FitsIn(scale(s.Unit)))
}

// within bounds a wait by the end of the pass: what would come back later does not, and
// the next pass has all of its own.
func (s Seen) within(d time.Duration) time.Duration {
	for _, end := range []time.Duration{s.Life, s.Ends} {
		if end > 0 {
			d = min(d, end)
		}
	}
	return d
}

// Window is the time over which the limit's capacity may be used: its period, or the life
// of what it ends with.
func (l Limit) Window() time.Duration {
	if l.Life > 0 {
		return l.Life
	}
	return l.Period
}

// View is the limit as it is shown.
func (s Seen) View() View {
	return View{s.Name, s.Unit, s.Shown(s.Capacity), int64(s.Window().Seconds()),
		Left{s.Remaining(), ceilSeconds(s.FullIn()), ceilSeconds(s.nextIn())}}
}

// ViewOf shows a limit in a state.
func ViewOf(l Limit, s bucket.Status) View { return Seen{Limit: l, State: s}.View() }

// LeftOf shows what is left.
func LeftOf(l Limit, s bucket.Status) Left { return ViewOf(l, s).Left }

// ceilSeconds rounds up. d may be the longest Duration that there is.
func ceilSeconds(d time.Duration) int64 {
	whole := d / time.Second
	if d%time.Second > 0 {
		whole++
	}
	return int64(whole)
}
