package ledger

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// The item of an event holds all that is known of the call, in its own partition.
func TestItem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	e := w.event(noon.Add(11*time.Minute+time.Second+123456789*time.Nanosecond), func(e *Event) {
		e.Usage = price.Usage{Input: 5, CachedInput: 2, CacheWrite: 1, Output: 9, Reasoning: 3}
		e.Cost, e.Estimated, e.ProviderRequest = math.MaxInt64, true, "req_011CPTEXAMPLE"
	})
	w.record(l, e)
	items := append(w.items("2026-03-02T12:11#0"), w.items("2026-03-02T12:11#1")...)
	check.Must(t, len(items) == 1, "%d items", len(items))
	want := map[string]string{
		"sk": "reservation-1", "expires": "1775909461", "provider_request": "req_011CPTEXAMPLE",
		"event": "1 1772453461123456 9223372036854775807 completed 1 pro cv small 5 2 1 9 3 user#1",
	}
	for name, v := range items[0] {
		got := ""
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			got = v.Value
		case *types.AttributeValueMemberN:
			got = v.Value
		}
		if name != "pk" && got != want[name] {
			t.Errorf("%s is %q, want %q", name, got, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

// The longest event that there can be is one write unit: names and ids have bounds.
func TestItemIsSmall(t *testing.T) {
	t.Parallel()
	longest := func(n int) string { return strings.Repeat("x", n) }
	e := Event{Reservation: longest(64), Time: noon, Identity: "user#" + longest(32+1+128), Tier: longest(32), Feature: longest(32), Model: longest(32),
		Usage: price.Usage{Input: 1 << 40, CachedInput: 1 << 39, CacheWrite: 1 << 39, Output: 1 << 40, Reasoning: 1 << 40}, Cost: math.MaxInt64,
		Outcome: Abandoned, Estimated: true, ProviderRequest: longest(128)}
	check.OK(t, e.validate())
	it, err := e.item(newWorld(t).ledger().partitionOf(e))
	check.OK(t, err)
	size := 0
	for name, v := range it {
		size += len(name) + 24 // a number, and what it costs
		if text, ok := v.(*types.AttributeValueMemberS); ok {
			size += len(text.Value)
		}
	}
	check.That(t, size < 1024, "it has %d bytes", size)
}

func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	for name, adjust := range map[string]func(*Event){
		"long request id":  func(e *Event) { e.ProviderRequest = strings.Repeat("r", 129) },
		"no reservation":   func(e *Event) { e.Reservation = "" },
		"long reservation": func(e *Event) { e.Reservation = strings.Repeat("r", 1025) },
		"no identity":      func(e *Event) { e.Identity = "" },
		"no time":          func(e *Event) { e.Time = time.Time{} },
		"negative cost":    func(e *Event) { e.Cost = -1 },
	} {
		if err := l.Record(context.Background(), w.event(noon, adjust)); err == nil {
			t.Errorf("%s: recorded", name)
		}
		if err := l.RecordAbandoned(context.Background(), w.event(noon, abandoned, adjust)); err == nil {
			t.Errorf("%s: recorded as abandoned", name)
		}
	}
	if err := l.Record(context.Background(), w.event(noon, abandoned)); err == nil {
		t.Error("Record took an abandoned call")
	}
	if err := l.RecordAbandoned(context.Background(), w.event(noon)); err == nil {
		t.Error("RecordAbandoned took a settled call")
	}
	check.Equal(t, w.sent(), 0, "calls of the store")
}

// Whatever is repeated, and in whatever order, a call counts once, and what is known
// of it counts more than what was assumed.
func TestOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.ledger(), w.ledger()
	actual := w.event(noon)
	assumed := actual
	abandoned(&assumed)
	remains := func(step string) {
		t.Helper()
		w.wantSum(b, noon, noon.Add(time.Minute))
		if t.Failed() {
			t.Fatal("after ", step)
		}
	}
	w.recordAbandoned(a, assumed)
	remains("abandoned")
	w.recordAbandoned(b, assumed)
	remains("abandoned again")
	w.record(a, actual)
	remains("settled")
	w.record(b, actual)
	remains("settled again")
	w.recordAbandoned(a, assumed)
	w.recordAbandoned(b, assumed)
	remains("abandoned after all")
	check.Must(t, w.truth[actual.Reservation].Outcome == Completed, "the test is wrong")
}

// A write that fails or hangs is sent again; a late arrival of the first changes
// nothing.
func TestRecordSendFails(t *testing.T) {
	t.Parallel()
	for _, f := range faults.All {
		for _, write := range []string{"PutItem", "hours#", "minutes#"} {
			t.Run(f.String()+", "+write, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				l := w.ledger(func(o *Options) { o.AttemptTimeout = 250 * time.Millisecond })
				settled, lost := w.event(noon), w.event(noon.Add(time.Second), abandoned)
				w.faulty(f, write)
				w.record(l, settled)
				w.faulty(f, write)
				w.recordAbandoned(l, lost)
				check.OK(t, w.net.Deliver())
				w.Advance(time.Hour)
				w.wantSum(l, noon, noon.Add(time.Minute))
				w.wantSum(l, noon, noon.Add(time.Minute))
			})
		}
	}
}

// A late arrival of an abandoned call's write does not undo the settle.
func TestLateAbandonedSend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	actual := w.event(noon)
	assumed := actual
	abandoned(&assumed)
	w.faulty(faults.LateRequest, "PutItem")
	w.recordAbandoned(l, assumed)
	w.record(l, actual)
	check.OK(t, w.net.Deliver())
	w.wantSum(l, noon, noon.Add(time.Second))
}

// Without an answer a recording ends with its context, and when the store is back it
// can be repeated.
func TestRecordUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.plan = func(string, string) faults.Fault { return faults.Hang }
	for _, write := range []func(context.Context) error{
		func(ctx context.Context) error { return l.Record(ctx, w.event(noon)) },
		func(ctx context.Context) error { return l.RecordAbandoned(ctx, w.event(noon, abandoned)) },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		start := time.Now()
		err := write(ctx)
		check.That(t, err != nil, "recorded without a store")
		d := time.Since(start)
		check.That(t, d <= time.Second, "it took %s", d)
		cancel()
	}
	w.plan = nil
	w.record(l, w.event(noon))
	w.wantSum(l, noon, noon.Add(time.Second))
}

// An hour is marked once by a process, before its first event.
func TestMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.faulty(faults.Throttled, "PutItem")
	for i := range 10 {
		w.record(l, w.event(noon.Add(time.Duration(i)*time.Second)))
	}
	check.Equal(t, w.sent("UpdateItem", "hours#"), 1, "marks of an hour")
	check.That(t, strings.HasPrefix(w.calls[0], "UpdateItem"), "the mark does not come first: %s", w.calls[0])
	w.record(l, w.event(noon.Add(time.Hour)))
	check.Equal(t, w.sent("UpdateItem", "hours#"), 2, "marks of two hours")
	for i := range 2 * remembered {
		w.record(l, w.event(noon.Add(-time.Duration(i)*time.Hour)))
	}
	check.That(t, len(l.marked) <= remembered, "%d hours are kept in mind", len(l.marked))
}
