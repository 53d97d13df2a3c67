package bucket

import (
	"math"
	"time"
)

// micros is a moment, in microseconds since 1970, or a length of time, in microseconds.
// A type of its own keeps them apart from costs and capacities, which are in the units
// of a limit.
type micros int64

const (
	milli  = micros(time.Millisecond / time.Microsecond)
	second = micros(time.Second / time.Microsecond)
)

// at is a moment, and lasting is a length of time, rounded down.

func at(t time.Time) micros          { return micros(t.UnixMicro()) }
func lasting(d time.Duration) micros { return micros(d.Microseconds()) }

// time is the moment m.
func (m micros) time() time.Time { return time.UnixMicro(int64(m)) }

// duration is the length m; what is more than a time.Duration can hold, as a foreign
// TAT may give, becomes the longest.
func (m micros) duration() time.Duration {
	return time.Duration(min(m, math.MaxInt64/micros(time.Microsecond))) * time.Microsecond
}
