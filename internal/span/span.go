// Package span reads durations as people type them.
package span

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Parse reads a duration as time.ParseDuration does, and one that begins with whole days
// of 24 hours: 90s, 1h30m, 1d, 1d12h. Who tells people of an error says what would be
// right.
func Parse(s string) (time.Duration, error) {
	days, more, found := strings.Cut(s, "d")
	if !found || days == "" || strings.Trim(days, "0123456789") != "" {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseInt(days, 10, 64)
	if err != nil || n > int64(math.MaxInt64/(24*time.Hour)) {
		return 0, errors.New("too many days")
	}
	whole, rest := time.Duration(n)*24*time.Hour, time.Duration(0)
	if more != "" {
		if more[0] < '0' || more[0] > '9' || more == "0" { // which time takes without a unit
			return 0, errors.New("no number with a unit after the days")
		}
		if rest, err = time.ParseDuration(more); err != nil {
			return 0, err
		}
	}
	if rest > math.MaxInt64-whole {
		return 0, errors.New("too long")
	}
	return whole + rest, nil
}
