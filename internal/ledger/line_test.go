package ledger

import (
	"math"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

func TestLine(t *testing.T) {
	t.Parallel()
	usage := price.Usage{Input: 5, CachedInput: 2, CacheWrite: 1, Output: 9, Reasoning: 3}
	for want, e := range map[string]Event{
		"1 1772452800000000 9223372036854775807 completed 1 pro cv small 5 2 1 9 3 user#auth0|123": {
			Time: noon, Identity: "user#auth0|123", Tier: "pro", Feature: "cv", Model: "small", Usage: usage, Cost: math.MaxInt64, Outcome: Completed, Estimated: true},
		"1 1772452800000000 0 failed 0 . . . 0 0 0 0 0 net#a": {Time: noon, Identity: "net#a", Outcome: Failed},
		"1 1772452800000000 1 abandoned 0 . cv small 0 0 0 0 0 user#a b  c\n\xff": {
			Time: noon, Identity: "user#a b  c\n\xff", Feature: "cv", Model: "small", Cost: 1, Outcome: Abandoned},
	} {
		if line, err := e.record().line(); err != nil || line != want {
			t.Errorf("%v\n got %q\nwant %q", err, line, want)
		}
	}
	// What could not be read is not written.
	for name, e := range map[string]Event{
		"a tier of two words": {Time: noon, Tier: "a b", Outcome: Completed},
		"a name like none":    {Time: noon, Feature: ".", Outcome: Completed},
		"no outcome":          {Time: noon},
		"a negative cost":     {Time: noon, Cost: -1, Outcome: Completed},
		"negative tokens":     {Time: noon, Usage: price.Usage{Output: -1}, Outcome: Completed},
	} {
		if line, err := e.record().line(); err == nil {
			t.Errorf("%s is written as %q", name, line)
		}
	}
}

// What is read would be written in the same way.
func FuzzLine(f *testing.F) {
	const good = "1 1772452800000000 12 completed 0 pro cv small 5 2 1 9 3 user#1"
	for _, line := range []string{good, good + " b", "1  " + good[2:], "2" + good[1:], "", " ", good[:40],
		"1 01 12 completed 0 pro cv small 5 2 1 9 3 u", "1 +1 12 completed 0 pro cv small 5 2 1 9 3 u", "1 -1 12 completed 0 pro cv small 5 2 1 9 3 u",
		"1 1 9223372036854775808 completed 0 pro cv small 5 2 1 9 3 u", "1 1 1 completed 2 pro cv small 5 2 1 9 3 u", "1 0 0 x 1 . . . 0 0 0 0 0 "} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, err := parseLine(line)
		if err != nil {
			return
		}
		if again, err := r.line(); err != nil || again != line {
			t.Errorf("%q is written as %q, %v", line, again, err)
		}
	})
}
