// Package testclock has a clock that only a test moves.
package testclock

import (
	"sync/atomic"
	"time"
)

// Clock stands still, in whole microseconds of UTC, until it is moved. It is safe for
// concurrent use.
type Clock struct{ micros atomic.Int64 }

// At makes a clock that shows a time.
func At(t time.Time) *Clock {
	c := &Clock{}
	c.Set(t)
	return c
}

// Now is what the clock shows.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()).UTC() }

// Set makes the clock show a time.
func (c *Clock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance moves the clock on.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }
