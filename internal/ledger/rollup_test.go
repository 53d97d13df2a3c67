package ledger

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// fill records events all over an hour.
func (w *world) fill(l *Ledger, start time.Time) {
	w.t.Helper()
	for i := range 40 {
		w.record(l, w.event(start.Add(time.Duration(i)*89*time.Second)))
	}
}

// A minute is read until it is closed, and once more then.
func TestClosing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.record(l, w.event(noon.Add(time.Second)))
	reads := func() int {
		t.Helper()
		w.forget()
		w.wantSum(l, noon, noon.Add(time.Minute))
		return w.sent("Query", "12:00#")
	}
	w.Set(noon.Add(time.Minute + closing - time.Microsecond))
	for range 2 {
		check.Equal(t, reads(), 2, "open: reads")
	}
	items := w.items("minutes#2026-03-02T12")
	check.That(t, len(items) == 0, "an open minute has roll-ups: %v", items)
	// The last settle that can come.
	w.record(l, w.event(noon.Add(time.Minute-time.Microsecond)))
	w.Advance(time.Microsecond)
	check.Equal(t, reads(), 2, "closing: reads")
	check.Equal(t, reads(), 0, "closed: reads")
	// The partial minute is read.
	w.forget()
	w.wantSum(l, noon.Add(time.Second), noon.Add(time.Minute))
	w.wantSum(l, noon, noon.Add(59*time.Second))
	check.Equal(t, w.sent("Query", "12:00#"), 4, "partial: reads")
	if w.log.String() != "" {
		t.Error(w.log.String())
	}
}

// Who may only read sums the same, and writes nothing.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(w.ledger(), noon)
	w.Set(noon.Add(2 * time.Hour))
	reader := w.ledger(func(o *Options) { o.ReadOnly = true })
	for range 2 {
		w.forget()
		w.wantSum(reader, noon, noon.Add(time.Hour))
		check.Equal(t, w.sent("UpdateItem", "")+w.sent("PutItem", ""), 0, "writes")
		w.wantSum(w.ledger(), noon, noon.Add(time.Hour)) // rolls up; what is rolled up is read
	}
}

// The whole of an hour, rolled up, is the same as read raw.
func TestRollUpEqualsRaw(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(w.ledger(), noon)
	w.Set(noon.Add(time.Hour + closing))
	l := w.ledger()
	w.wantSum(l, noon, noon.Add(time.Hour))
	w.forget()
	w.wantSum(l, noon, noon.Add(time.Hour))
	if n := w.sent("Query"); n != 2 { // the hour and its roll-ups
		t.Errorf("%d reads", n)
	}
}

// What comes after its minute and its hour are closed is in the next sum, and what
// was made anew stays.
func TestLate(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(*world, *Ledger, Event){
		"abandoned": func(w *world, l *Ledger, e Event) { abandoned(&e); w.recordAbandoned(l, e) },
		"settled after it seemed abandoned": func(w *world, l *Ledger, e Event) {
			assumed := e
			abandoned(&assumed)
			w.recordAbandoned(l, assumed)
			w.wantSum(l, noon, noon.Add(time.Hour))
			w.record(l, e)
		},
		"settled later than promised": func(w *world, l *Ledger, e Event) { w.record(l, e) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l, other := w.ledger(), w.ledger()
			w.fill(l, noon)
			w.Set(noon.Add(2 * time.Hour))
			read := func() {
				t.Helper()
				for range 2 {
					w.wantSum(l, noon, noon.Add(time.Hour))
					w.wantHours(l, noon.Add(-time.Hour), noon.Add(2*time.Hour))
				}
			}
			read()
			for i := range 3 {
				late(w, other, w.event(noon.Add(time.Duration(i)*time.Minute)))
				read()
			}
			w.forget()
			read()
			check.Equal(t, w.sent("Query", "T12:"), 0, "reads of events")
		})
	}
}

// A late abandoned call in an hour that had nothing: nobody marked it.
func TestLateAndAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.Set(noon.Add(3 * time.Hour))
	w.wantHours(l, noon, noon.Add(3*time.Hour))
	w.recordAbandoned(l, w.event(noon.Add(time.Minute), abandoned))
	w.wantHours(l, noon, noon.Add(3*time.Hour))
	w.wantSum(l, noon, noon.Add(3*time.Hour))
}

// An abandoned call arrives while a roll-up of its minute or hour is being made: the
// sum has read the events and not yet written. What it writes must not stay.
func TestLateWhileRollingUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		write string
		sum   func(*Ledger) error
	}{
		"minute": {"minutes#", func(l *Ledger) error {
			_, err := l.Sum(context.Background(), noon, noon.Add(time.Minute))
			return err
		}},
		"hour": {"hours#", func(l *Ledger) error {
			_, err := l.Hours(context.Background(), noon, noon.Add(time.Hour))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for before := range 2 { // late ones that were there already
				w := newWorld(t)
				l := w.ledger(func(o *Options) { o.Shards = 1 })
				w.record(l, w.event(noon))
				w.Set(noon.Add(2 * time.Hour))
				for range before {
					w.recordAbandoned(l, w.event(noon, abandoned))
				}
				// All sends of the roll-up are late.
				w.plan = func(target, body string) faults.Fault {
					if target == "UpdateItem" && strings.Contains(body, tt.write) && strings.Contains(body, ":s") {
						return faults.LateRequest
					}
					return faults.None
				}
				check.OK(t, tt.sum(l))
				w.plan = nil
				check.Must(t, strings.Contains(w.log.String(), "could not be written"), "the roll-up was not late")
				w.recordAbandoned(l, w.event(noon.Add(time.Second), abandoned))
				check.OK(t, w.net.Deliver())
				w.wantSum(l, noon, noon.Add(time.Minute))
				w.wantHours(l, noon, noon.Add(time.Hour))
			}
		})
	}
}

// An abandoned call whose roll-ups were not taken back is recorded again by whoever
// sweeps next: it must get further then, though the event is there.
func TestAbandonedHalfRecorded(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"minutes#", "hours#"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.ledger()
			w.record(l, w.event(noon))
			w.Set(noon.Add(2 * time.Hour))
			w.wantSum(l, noon, noon.Add(time.Hour))
			w.wantHours(l, noon, noon.Add(time.Hour))

			late := w.event(noon.Add(time.Second), abandoned)
			w.plan = func(target, body string) faults.Fault {
				if target == "UpdateItem" && strings.Contains(body, step) {
					return faults.LostRequest
				}
				return faults.None
			}
			err := l.RecordAbandoned(context.Background(), late)
			check.Must(t, err != nil, "no error")
			w.plan = nil
			w.recordAbandoned(l, late)
			w.wantSum(l, noon, noon.Add(time.Hour))
			w.wantHours(l, noon, noon.Add(time.Hour))
		})
	}
}

// A settle that comes later than promised and dies before the roll-ups are taken back
// leaves its hold. Whoever sweeps that finds the event there, and must get further.
func TestLateSettleHalfRecorded(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"minutes#", "hours#"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.ledger()
			w.record(l, w.event(noon))
			w.Set(noon.Add(2 * time.Hour))
			w.wantSum(l, noon, noon.Add(time.Hour))
			w.wantHours(l, noon, noon.Add(time.Hour))

			late := w.event(noon.Add(time.Second))
			w.plan = func(target, body string) faults.Fault {
				if target == "UpdateItem" && strings.Contains(body, step) {
					return faults.LostRequest
				}
				return faults.None
			}
			err := l.Record(context.Background(), late)
			check.Must(t, err != nil, "no error")
			w.plan = nil
			w.truth[late.Reservation] = late
			assumed := late
			abandoned(&assumed)
			w.recordAbandoned(w.ledger(), assumed)
			w.wantSum(l, noon, noon.Add(time.Hour))
			w.wantHours(l, noon, noon.Add(time.Hour))
		})
	}
}

// The longest call that any configuration allows is in the sums, and costs one write
// like any other, though a process that is configured for short calls sums all the
// time. The processes have nothing to differ in: this holds for both orders of a
// deployment that changes a timeout.
func TestLongestCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	generate, spendalarm := w.ledger(), w.ledger()
	w.record(generate, w.event(noon)) // marks the hour
	long := w.event(noon)
	watched := func() {
		t.Helper()
		for range 2 {
			w.wantSum(spendalarm, w.Now().Add(-time.Hour), w.Now())
			w.wantHours(spendalarm, noon.Add(-time.Hour), w.Now())
		}
	}
	for w.Now().Before(noon.Add(LongestCall)) {
		watched()
		w.Advance(min(time.Minute, noon.Add(LongestCall).Sub(w.Now())))
	}
	w.forget()
	w.record(generate, long)
	check.Equal(t, w.sent("Item"), 1, "writes")
	for range 80 {
		watched()
		w.Advance(time.Minute)
	}
}

// The hour is taken back last: were it first, it could be made again of a minute
// that is not yet.
func TestHourIsTakenBackLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.recordAbandoned(l, w.event(noon, abandoned))
	var order []string
	for _, call := range w.calls {
		for _, part := range []string{"PutItem", "minutes#", "hours#"} {
			if strings.Contains(call, part) {
				order = append(order, part)
			}
		}
	}
	if got := strings.Join(order, " "); got != "PutItem minutes# hours#" {
		t.Error(got)
	}
}

// A roll-up that cannot be written is said, and does not spoil the sum.
func TestRollUpCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.record(l, w.event(noon))
	w.Set(noon.Add(2 * time.Hour))
	w.plan = func(target, body string) faults.Fault {
		if target == "UpdateItem" {
			return faults.LostRequest
		}
		return faults.None
	}
	w.wantSum(l, noon, noon.Add(time.Minute))
	w.wantHours(l, noon, noon.Add(time.Hour))
	log := w.log.String()
	check.That(t, strings.Contains(log, "minutes#2026-03-02T12") && strings.Contains(log, "hours#2026-03"), "log: %s", log)
	w.plan = nil
	w.wantSum(l, noon, noon.Add(time.Minute))
	w.forget()
	w.wantSum(l, noon, noon.Add(time.Minute))
	check.Equal(t, w.sent("Query", "T12:"), 0, "reads of events")
}

// A minute whose identities do not fit a roll-up is read each time, and summed all
// the same.
func TestTooManyIdentities(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger(func(o *Options) { o.Shards = 1 })
	for i := range 220 {
		w.record(l, w.event(noon, func(e *Event) { e.Identity = fmt.Sprintf("user#%d-%s", i, strings.Repeat("x", 2000)) }))
	}
	w.Set(noon.Add(time.Hour))
	for range 2 {
		w.forget()
		w.wantSum(l, noon, noon.Add(time.Minute))
		n := w.sent("Query", "12:00#0")
		check.That(t, n != 0, "not read")
	}
	if w.log.String() != "" {
		t.Error(w.log.String())
	}
}

// The largest roll-up fits an item.
func TestLargestRollUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	key := keyOf("minutes#2026-03-02T12", "00#0")
	for length, fits := range map[int]bool{maxRollUp: true, maxRollUp + 1: false} {
		w.forget()
		l.writeRollUp(context.Background(), key, noon.UnixMicro(), 1<<60, strings.Repeat("x", length-2)) // and quotes
		n := w.sent("UpdateItem")
		check.That(t, n != 0 == fits, "%d bytes: %d writes", length, n)
	}
	l.writeRollUp(context.Background(), key, noon.UnixMicro(), 0, strings.Repeat("x", maxRollUp-2))
	items := w.items("minutes#2026-03-02T12")
	check.That(t, len(items) == 1 && len(dynamo.TextOf(items[0], attrSums)) == maxRollUp, "not written")
	if w.log.String() != "" {
		t.Error(w.log.String())
	}
}

// Several sums at once, while abandoned calls come in: each has what was recorded
// before it began, and in the end all agree.
func TestSumsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(w.ledger(), noon)
	w.Set(noon.Add(2 * time.Hour))
	before := w.naive(noon, noon.Add(time.Hour)).Total
	var late []Event
	for i := range 30 {
		late = append(late, w.event(noon.Add(time.Duration(i)*time.Minute), abandoned))
	}
	var all sync.WaitGroup
	for range 3 {
		l := w.ledger()
		all.Go(func() {
			last := before
			for range 4 {
				s, err := l.Sum(context.Background(), noon, noon.Add(time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				check.That(t, s.Total.Cost >= last.Cost && s.Total.Calls >= last.Calls, "%+v after %+v", s.Total, last)
				last = s.Total
				if _, err := l.Hours(context.Background(), noon, noon.Add(time.Hour)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		l := w.ledger()
		for _, e := range late {
			if err := l.RecordAbandoned(context.Background(), e); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	for _, e := range late {
		w.truth[e.Reservation] = e
	}
	l := w.ledger()
	w.wantSum(l, noon, noon.Add(time.Hour))
	w.wantHours(l, noon, noon.Add(time.Hour))
}
