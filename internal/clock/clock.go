// Package clock measures time across the freezing of a process.
package clock

import "time"

// Since is how long before now then was, both of time.Now or of one clock: by the wall
// clock or by the monotonic one, whichever says more. Lambda freezes processes between
// calls, and a frozen one's monotonic clock stands still; a wall clock may be set back.
// It is negative only if both say so.
func Since(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
