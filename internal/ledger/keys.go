package ledger

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// minute and hour are numbers of minutes and hours since 1970, UTC.
type (
	minute int64
	hour   int64
)

const (
	minuteMicros = int64(time.Minute / time.Microsecond)
	hourMicros   = int64(time.Hour / time.Microsecond)
)

func (m minute) start() int64 { return int64(m) * minuteMicros } // in microseconds since 1970
func (m minute) end() int64   { return (m + 1).start() }
func (m minute) hour() hour   { return hour(m / 60) }
func (h hour) start() int64   { return int64(h) * hourMicros }
func (h hour) end() int64     { return (h + 1).start() }
func (h hour) time() time.Time {
	return time.Unix(int64(h)*3600, 0).UTC()
}

const (
	hourFormat  = "2006-01-02T15"
	monthFormat = "2006-01"
)

// partition is where some events of a minute are.
type partition struct {
	minute minute
	shard  int
}

// partitionOf is the partition of a reservation. The shard depends on the
// reservation alone, so that all its events meet.
func (l *Ledger) partitionOf(e Event) partition {
	h := fnv.New32a()
	_, _ = h.Write([]byte(e.Reservation))
	return partition{minute(e.Time.Unix() / 60), int(h.Sum32() % uint32(l.opts.Shards))}
}

// key is the partition key of the partition's events.
func (p partition) key() string {
	return fmt.Sprintf("%s:%s", p.minute.hour().time().Format(hourFormat), p.rollUpSort())
}

// rollUpSort is the sort key of the partition's roll-up, in those of its hour.
func (p partition) rollUpSort() string { return fmt.Sprintf("%02d#%d", p.minute%60, p.shard) }

// parseRollUpSort reverses rollUpSort.
func parseRollUpSort(h hour, sort string) (partition, bool) {
	m, s, ok := strings.Cut(sort, "#")
	in, err := strconv.Atoi(m)
	if !ok || err != nil {
		return partition{}, false
	}
	shard, err := strconv.Atoi(s)
	p := partition{minute(h)*60 + minute(in), shard}
	return p, err == nil && p.minute.hour() == h && p.rollUpSort() == sort
}

// rollUpsKey is the partition key of the roll-ups of an hour's partitions.
func (h hour) rollUpsKey() string { return "minutes#" + h.time().Format(hourFormat) }

// key and sort are the keys of an hour's own roll-up.
func (h hour) key() string  { return "hours#" + h.time().Format(monthFormat) }
func (h hour) sort() string { return h.time().Format(hourFormat) }

// window is the times t with from <= t < to, in microseconds since 1970.
type window struct{ from, to int64 }

// newWindow rounds up to whole microseconds, which events have: what is at or
// after a moment is at or after the next whole one.
func newWindow(from, to time.Time) window { return window{ceilMicros(from), ceilMicros(to)} }

func ceilMicros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

func (w window) holds(t int64) bool { return w.from <= t && t < w.to }

// minutes are the minutes that w touches, first to last; none if first > last.
func (w window) minutes() (first, last minute) {
	return minute(w.from / minuteMicros), minute((w.to+minuteMicros-1)/minuteMicros) - 1
}

// hours are the hours that w touches.
func (w window) hours() (first, last hour) {
	return hour(w.from / hourMicros), hour((w.to+hourMicros-1)/hourMicros) - 1
}

// wholeMinutes and wholeHours are those that lie in w.

func (w window) wholeMinutes() (first, last minute) {
	return minute((w.from + minuteMicros - 1) / minuteMicros), minute(w.to/minuteMicros) - 1
}

func (w window) wholeHours() (first, last hour) {
	return hour((w.from + hourMicros - 1) / hourMicros), hour(w.to/hourMicros) - 1
}

// and is what w and v have in common.
func (w window) and(v window) window { return window{max(w.from, v.from), min(w.to, v.to)} }
