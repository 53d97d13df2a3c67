package clock

import (
	"context"
	"time"
)

// Every calls f at each end of d, which is above 0, until ctx ends. Ends that pass while f
// runs are one. It blocks, and f is never called twice at a time.
func Every(ctx context.Context, d time.Duration, f func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f(ctx)
		}
	}
}
