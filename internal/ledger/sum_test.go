package ledger

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func TestSumRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	for name, length := range map[string]time.Duration{"reversed": -time.Second, "too long": LongestWindow + 1} {
		if _, err := l.Sum(context.Background(), noon, noon.Add(length)); err == nil {
			t.Errorf("%s: summed", name)
		}
	}
	w.wantSum(l, noon, noon)
}

// Nothing was ever spent: one read says so, of a whole day.
func TestSumOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.wantSum(l, noon.Add(-25*time.Hour), noon)
	check.Equal(t, w.sent(), 1, "calls of the store")
}

// Events cross in and out of a trailing window at the microsecond, open or closed,
// at the boundaries of minutes, hours, days, months and years.
func TestWindow(t *testing.T) {
	t.Parallel()
	for name, boundary := range map[string]time.Time{
		"second": noon.Add(17 * time.Second), "minute": noon.Add(time.Minute), "hour": noon,
		"day": time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC), "month": time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC),
		"year": time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), "other zone": time.Date(2026, 3, 2, 0, 30, 0, 0, time.FixedZone("", 5*3600+1800)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.ledger()
			w.Set(boundary.Add(time.Minute))
			for _, d := range []time.Duration{-time.Minute, -time.Second, -time.Microsecond, 0, time.Microsecond, time.Second, time.Minute - time.Microsecond} {
				w.record(l, w.event(boundary.Add(d)))
			}
			for range 3 { // open, closed and rolled up
				for _, d := range []time.Duration{-time.Second, -time.Microsecond, 0, 1, time.Microsecond, 1500 * time.Nanosecond, time.Second} {
					w.wantSum(l, boundary.Add(d-2*time.Minute), boundary.Add(d))
					w.wantSum(l, boundary.Add(d), boundary.Add(d+2*time.Minute))
				}
				w.Advance(2 * closing)
			}
		})
	}
}

// As time goes by the trailing hour loses each event at its second, though the
// minute that it is in has a roll-up.
func TestTrailingHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	for i := range 30 {
		w.record(l, w.event(noon.Add(time.Duration(i)*7*time.Second)))
	}
	for d := time.Duration(0); d < 70*time.Minute; {
		w.Set(noon.Add(d))
		w.wantSum(l, w.Now().Add(-time.Hour), w.Now())
		if d < 4*time.Minute || d > 59*time.Minute && d < 64*time.Minute {
			d += 11 * time.Second
		} else {
			d += 5 * time.Minute
		}
	}
}

// More than the megabyte that DynamoDB sends at a time, and more events than we ask
// for at a time, in one partition.
func TestPages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ events, length int }{"bytes": {400, 3000}, "events": {page + 100, 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.ledger(func(o *Options) { o.Shards = 1 })
			for i := range tt.events {
				w.record(l, w.event(noon.Add(time.Duration(i)*time.Millisecond), func(e *Event) {
					e.Identity = fmt.Sprintf("user#%d-%s", i%100, strings.Repeat("x", tt.length))
				}))
			}
			for _, pages := range []int{2, 2, 0} { // open, closed and rolled up
				w.forget()
				w.wantSum(l, noon, noon.Add(time.Minute))
				check.Equal(t, w.sent("Query", "12:00#0"), pages, "pages")
				w.Advance(2 * closing)
			}
		})
	}
}

// Money beyond int64 is the most that int64 holds, in sums of events, of roll-ups and
// of hours: an error would keep the alarm from seeing any of it.
func TestOverflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	half := func(e *Event) { e.Cost = math.MaxInt64/2 + 1 }
	w.record(l, w.event(noon, half))
	w.record(l, w.event(noon.Add(time.Minute), half))
	for range 3 { // open, closed and rolled up
		got, err := l.Sum(context.Background(), noon, noon.Add(2*time.Minute))
		check.That(t, err == nil && got.Total.Calls == 2 && got.Total.Cost == math.MaxInt64, "got %+v, %v", got.Total, err)
		w.wantSum(l, noon, noon.Add(time.Minute))
		w.wantSum(l, noon.Add(time.Minute), noon.Add(2*time.Minute))
		w.Advance(closing)
	}
	w.Set(noon.Add(2 * time.Hour))
	for range 2 { // summed, and rolled up
		hours, err := l.Hours(context.Background(), noon, noon.Add(time.Hour))
		check.That(t, err == nil && len(hours) == 1 && hours[0].Calls == 2 && hours[0].Cost == math.MaxInt64, "got %+v, %v", hours, err)
	}
}

func TestAmountSaturates(t *testing.T) {
	const most = math.MaxInt64
	for _, tt := range []struct{ a, b, want Amount }{
		{Amount{Cost: most - 1}, Amount{Cost: 1}, Amount{Cost: most}},
		{Amount{Cost: most}, Amount{Cost: 1}, Amount{Cost: most}},
		{Amount{Cost: 1}, Amount{Cost: most}, Amount{Cost: most}},
		{Amount{Calls: most, Estimated: most - 1}, Amount{Calls: 1, Estimated: 1}, Amount{Calls: most, Estimated: most}},
		{Amount{Calls: most, Abandoned: most, Cost: most, AbandonedCost: most}, Amount{Calls: 1, Abandoned: 1, Cost: 5, AbandonedCost: 5},
			Amount{Calls: most, Abandoned: most, Cost: most, AbandonedCost: most}},
		{Amount{1, 2, 3, 4, 5}, Amount{10, 20, 30, 40, 50}, Amount{11, 22, 33, 44, 55}},
	} {
		got := tt.a
		got.add(tt.b)
		check.Equal(t, got, tt.want, "%+v and %+v", tt.a, tt.b)
		// What was written of it can be read again.
		if again, err := got.numbers().amount(); got.valid() && (err != nil || again != got) {
			t.Errorf("%+v came back as %+v, %v", got, again, err)
		}
	}
}

// A broken item stops the sum: a total that lacks something would look like less
// spending.
func TestBrokenItems(t *testing.T) {
	t.Parallel()
	type stored struct {
		pk, sk string
		item   item
	}
	event := func(v types.AttributeValue) stored {
		it := item{dynamo.Expires: dynamo.Number(1 << 40)}
		if v != nil {
			it[attrEvent] = v
		}
		return stored{"2026-03-02T12:00#0", "r", it}
	}
	line := func(time, cost string) stored {
		return event(dynamo.Text("1 " + time + " " + cost + " completed 0 user ask small 1 0 0 1 0 user#1"))
	}
	at := fmt.Sprint(noon.UnixMicro())
	rolled := func(sums string) stored {
		return stored{"minutes#2026-03-02T12", "00#0", item{attrSums: dynamo.Text(sums)}}
	}
	for name, broken := range map[string]stored{
		"no event":            event(nil),
		"event is a number":   event(dynamo.Number(1)),
		"event is JSON":       event(dynamo.Text("{}")),
		"event is empty":      event(dynamo.Text("")),
		"no time":             line("", "1"),
		"negative time":       line("-1", "1"),
		"no cost":             line(at, ""),
		"negative cost":       line(at, "-1"),
		"cost is text":        line(at, "one"),
		"cost is a fraction":  line(at, "1.5"),
		"cost beyond int64":   line(at, "9223372036854775808"),
		"another form":        event(dynamo.Text("2 " + at + " 1 completed 0 user ask small 1 0 0 1 0 user#1")),
		"sums are no JSON":    rolled(`{`),
		"sums are no numbers": rolled(`{"tiers":{"user":["1"]}}`),
		"too many sums":       rolled(`{"tiers":{"user":[1,1,1,1,1,1]}}`),
		"negative sums":       rolled(`{"tiers":{"user":[1,-1]}}`),
		"a part beyond all":   rolled(`{"identities":{"user#1":[1,1,2]}}`),
		"late is text":        {"minutes#2026-03-02T12", "00#0", item{attrLate: dynamo.Text("1")}},
		"no minute":           {"minutes#2026-03-02T12", "00", item{}},
		"broken hour":         {"hours#2026-03", "2026-03-02T12", item{attrLate: dynamo.Number(-1)}},
		"hour without a date": {"hours#2026-03", "2026-03-02T12x", item{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.ledger()
			w.record(l, w.event(noon))
			it := keyOf(broken.pk, broken.sk)
			for name, v := range broken.item {
				it[name] = v
			}
			if _, err := w.db.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &w.table, Item: it}); err != nil {
				t.Fatal(err)
			}
			w.Advance(2 * time.Hour)
			if s, err := l.Sum(context.Background(), noon, noon.Add(90*time.Minute)); err == nil {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// A sum that cannot be read is an error, in time.
func TestSumUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.record(l, w.event(noon))
	for _, f := range []faults.Fault{faults.Hang, faults.LostReply} {
		for _, part := range []string{"hours#", "minutes#", "12:00#"} {
			w.plan = func(target, body string) faults.Fault {
				if strings.Contains(body, part) {
					return f
				}
				return faults.None
			}
			w.Set(noon.Add(time.Hour))
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			if s, err := l.Sum(ctx, noon, noon.Add(time.Hour)); err == nil {
				t.Errorf("got %+v", s)
			}
			cancel()
		}
	}
}

// The dearest identity of the window need not be among the dearest of any minute.
func TestTopIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	for m := range 5 {
		at := noon.Add(time.Duration(m) * time.Minute)
		for i := range 15 {
			w.record(l, w.event(at, func(e *Event) { e.Identity, e.Cost = fmt.Sprintf("user#%d-%d", m, i), price.Pico(10+i) }))
		}
		w.record(l, w.event(at, func(e *Event) { e.Identity, e.Cost = "user#steady", 9 }))
	}
	w.Advance(time.Hour)
	for range 2 {
		w.wantSum(l, noon, noon.Add(5*time.Minute))
		s, err := l.Sum(context.Background(), noon, noon.Add(5*time.Minute))
		check.OK(t, err)
		check.That(t, s.Top[0].Identity == "user#steady" && s.Top[0].Cost == 45 && len(s.Top) == 10, "%+v", s.Top)
	}
}

// Identities are foreign text: each comes out as it went in, from events and from
// roll-ups.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	for _, identity := range []string{`user#"o'hara"`, `user#\`, "user#<&>", "user#\u2028\x00\x7f\n", "user#Zoë 🔥", "user#zoë", "event", "{}", " "} {
		w.record(l, w.event(noon, func(e *Event) { e.Identity = identity }))
	}
	w.wantSum(l, noon, noon.Add(time.Minute))
	w.Advance(time.Hour)
	for range 2 { // closed and rolled up
		w.wantSum(l, noon, noon.Add(time.Minute))
	}
}
