package main

import (
	"math"
	"slices"
	"time"
)

// percentile is the smallest of the durations that at least p percent of them do
// not exceed (nearest rank); 0 if there are none. It sorts them.
func percentile(durations []time.Duration, p float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	slices.Sort(durations)
	rank := int(math.Ceil(p / 100 * float64(len(durations))))
	return durations[max(rank, 1)-1]
}
