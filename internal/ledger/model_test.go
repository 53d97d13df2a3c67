package ledger

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// Whatever is recorded in whatever order at whatever time, by two processes, and
// however often it is summed meanwhile: every sum is that of a plain list.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t)
		processes := []*Ledger{w.ledger(), w.ledger()}
		process := func() *Ledger { return rapid.SampledFrom(processes).Draw(r, "process") }
		within := func(name string, d time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(d)).Draw(r, name))
		}
		w.Set(noon.Add(-within("before noon", 10*time.Minute)))
		calls := []Event{w.event(w.Now())}
		call := func() Event { return rapid.SampledFrom(calls).Draw(r, "call") }
		r.Repeat(map[string]func(*rapid.T){
			"call": func(*rapid.T) {
				for range rapid.IntRange(1, 5).Draw(r, "calls") {
					w.Advance(within("pause", 20*time.Second))
					calls = append(calls, w.event(w.Now()))
				}
			},
			"wait":      func(*rapid.T) { w.Advance(within("wait", 5*time.Minute)) },
			"wait long": func(*rapid.T) { w.Advance(within("wait long", 40*time.Minute)) },
			"settle in time": func(*rapid.T) {
				for _, e := range calls {
					if _, known := w.truth[e.Reservation]; !known && w.Now().Sub(e.Time) <= LongestCall {
						w.record(process(), e)
					}
				}
			},
			"settle late or again": func(*rapid.T) { w.record(process(), call()) },
			"sweep": func(*rapid.T) {
				e := call()
				abandoned(&e)
				w.recordAbandoned(process(), e)
			},
			// Its process dies before the roll-ups are taken back; whoever sweeps the hold
			// knows of an abandoned call alone.
			"settle late and die": func(*rapid.T) {
				e := call()
				w.plan = func(target, body string) faults.Fault {
					if target == "UpdateItem" && strings.Contains(body, "minutes#") {
						return faults.LostRequest
					}
					return faults.None
				}
				err := process().Record(context.Background(), e)
				w.plan = nil
				w.truth[e.Reservation] = e
				if err != nil {
					abandoned(&e)
					w.recordAbandoned(process(), e)
				}
			},
			"sum": func(*rapid.T) {
				to := w.Now().Add(time.Microsecond - within("ago", 10*time.Minute))
				if rapid.Bool().Draw(r, "whole minutes") {
					to = to.Truncate(time.Minute)
				}
				w.wantSum(process(), to.Add(-within("length", 20*time.Minute)), to)
			},
			"hours": func(*rapid.T) { w.wantHours(process(), noon.Add(-2*time.Hour), w.Now()) },
			"": func(r *rapid.T) {
				check.Must(r, !t.Failed(), "a sum differs")
			},
		})
	})
}
