package clock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/clock"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			clock.Every(ctx, time.Minute, func(context.Context) {
				if calls.Add(1) == 3 {
					time.Sleep(150 * time.Second) // two ends pass, which are one
				}
			})
		}()
		for _, tc := range []struct {
			after time.Duration
			calls int64
		}{{59 * time.Second, 0}, {2 * time.Second, 1}, {2 * time.Minute, 3}, {2 * time.Minute, 3}, {time.Minute, 5}} {
			time.Sleep(tc.after)
			synctest.Wait()
			check.Equal(t, calls.Load(), tc.calls, "calls after another %s", tc.after)
		}
		cancel()
		<-ended
		check.Equal(t, calls.Load(), 5, "calls")
	})
}
