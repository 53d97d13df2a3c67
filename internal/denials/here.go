package denials

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"
)

// Metric is generate's of a denial.
const Metric = "Denied"

// Here counts the denials of one process, where nobody makes metrics of generate's log: the
// lines are written to it, and it gives the numbers back. It keeps an hour, by minutes.
type Here struct {
	now func() time.Time

	mu       sync.Mutex
	byMinute map[int64]map[string]int64
}

// NewHere makes a Here that has counted nothing yet.
func NewHere(now func() time.Time) *Here {
	return &Here{now: now, byMinute: map[int64]map[string]int64{}}
}

// kept is how long denials are kept, in minutes.
const kept = 61

// Write takes lines of the Embedded Metric Format.
func (d *Here) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		var m struct {
			Denied float64
			Limit  string
		}
		if json.Unmarshal(line, &m) == nil && m.Denied > 0 {
			d.add(m.Limit, int64(m.Denied))
		}
	}
	return len(lines), nil
}

func (d *Here) add(limit string, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	minute := d.now().Unix() / 60
	for m := range d.byMinute {
		if m < minute-kept {
			delete(d.byMinute, m)
		}
	}
	if d.byMinute[minute] == nil {
		d.byMinute[minute] = map[string]int64{}
	}
	d.byMinute[minute][limit] += n
}

// Count gives the denials of the minutes from from to to, by limit.
func (d *Here) Count(_ context.Context, from, to time.Time) (map[string]int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := map[string]int64{}
	for m, limits := range d.byMinute {
		if m < from.Unix()/60 || m > to.Unix()/60 {
			continue
		}
		for limit, n := range limits {
			counts[limit] += n
		}
	}
	return counts, nil
}
