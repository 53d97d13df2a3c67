package ledger

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
	"github.com/tokenfuse/tokenfuse/testkit/testclock"
)

func TestMain(m *testing.M) {
	// Each step of the model is many round trips.
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	os.Exit(enginetest.Main(m))
}

// closing is how long after its end a minute or hour is closed.
const closing = LongestCall + Grace

// noon is shortly before noon, so that windows cross an hour.
var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// world is one table with a clock, a network with faults, and the truth.
type world struct {
	*testclock.Clock
	t     *testing.T
	net   *faults.Transport
	table string
	db    *dynamodb.Client
	log   buffer.Synced

	// plan is what happens to a call, by its target and body; nil: nothing.
	plan func(target, body string) faults.Fault

	mu     sync.Mutex
	calls  []string // targets and bodies since the last forget
	truth  map[string]Event
	events int
}

func newWorld(t *testing.T) *world {
	w := &world{Clock: testclock.At(noon), t: t, truth: map[string]Event{}}
	w.net = &faults.Transport{Plan: func(target string, body []byte) faults.Fault {
		_, target, _ = strings.Cut(target, ".")
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, target+" "+string(body))
		if w.plan == nil {
			return faults.None
		}
		return w.plan(target, string(body))
	}}
	w.db, w.table = enginetest.SpendTable(t, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: w.net} })
	return w
}

// ledger is a process of its own.
func (w *world) ledger(adjust ...func(*Options)) *Ledger {
	w.t.Helper()
	opts := Options{Table: w.table, Now: w.Now, Shards: 2, Log: slog.New(slog.NewTextHandler(&w.log, nil))}
	for _, f := range adjust {
		f(&opts)
	}
	l, err := New(w.db, opts)
	check.OK(w.t, err)
	return l
}

// event is a new event at a time. Its cost is a sum that only this event explains.
func (w *world) event(at time.Time, adjust ...func(*Event)) Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	e := Event{
		Reservation: fmt.Sprintf("reservation-%d", w.events), Time: at, Identity: fmt.Sprintf("user#%d", w.events%7),
		Tier: []string{"user", "pro"}[w.events%2], Feature: []string{"docqa", "cv", "linkedin"}[w.events%3], Model: []string{"small", "large"}[w.events/2%2],
		Usage: price.Usage{Input: 100, Output: 10}, Cost: price.Pico(1_000_003 * w.events), Outcome: Completed,
	}
	for _, f := range adjust {
		f(&e)
	}
	return e
}

func abandoned(e *Event) {
	e.Tier, e.Outcome, e.Estimated, e.Cost = "", Abandoned, true, e.Cost*10
}

func (w *world) record(l *Ledger, e Event) {
	w.t.Helper()
	check.OK(w.t, l.Record(context.Background(), e))
	w.truth[e.Reservation] = e
}

func (w *world) recordAbandoned(l *Ledger, e Event) {
	w.t.Helper()
	check.OK(w.t, l.RecordAbandoned(context.Background(), e))
	if _, known := w.truth[e.Reservation]; !known {
		w.truth[e.Reservation] = e
	}
}

// naive is the truth about a window.
func (w *world) naive(from, to time.Time) Summary {
	s := Summary{From: from, To: to, Tiers: map[string]Amount{}, Features: map[string]Amount{}, Models: map[string]Amount{}, Top: []Spender{}}
	identities := map[string]Amount{}
	for _, e := range w.truth {
		at := e.Time.Truncate(time.Microsecond)
		if at.Before(from) || !at.Before(to) {
			continue
		}
		sum := func(a Amount) Amount {
			a.Calls++
			a.Cost += e.Cost
			if e.Outcome == Abandoned {
				a.Abandoned++
				a.AbandonedCost += e.Cost
			}
			if e.Estimated {
				a.Estimated++
			}
			return a
		}
		s.Total = sum(s.Total)
		s.Tiers[e.Tier] = sum(s.Tiers[e.Tier])
		s.Features[e.Feature] = sum(s.Features[e.Feature])
		s.Models[e.Model] = sum(s.Models[e.Model])
		identities[e.Identity] = sum(identities[e.Identity])
	}
	for identity, a := range identities {
		s.Top = append(s.Top, Spender{identity, a})
	}
	slices.SortFunc(s.Top, func(a, b Spender) int {
		if a.Cost != b.Cost {
			return map[bool]int{true: -1, false: 1}[a.Cost > b.Cost]
		}
		return strings.Compare(a.Identity, b.Identity)
	})
	s.Top = s.Top[:min(len(s.Top), 10)]
	return s
}

// wantSum holds a sum against the truth.
func (w *world) wantSum(l *Ledger, from, to time.Time) {
	w.t.Helper()
	got, err := l.Sum(context.Background(), from, to)
	check.OK(w.t, err)
	if diff := cmp.Diff(w.naive(from, to), got); diff != "" {
		w.t.Errorf("sum from %s to %s (-want +got):\n%s", from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano), diff)
	}
}

// wantHours holds hours against the truth: all whole ones that are closed.
func (w *world) wantHours(l *Ledger, from, to time.Time) {
	w.t.Helper()
	got, err := l.Hours(context.Background(), from, to)
	check.OK(w.t, err)
	var want []Hour
	for h := from.Truncate(time.Hour); h.Before(to); h = h.Add(time.Hour) {
		end := h.Add(time.Hour)
		if !h.Before(from) && !end.After(to) && !end.Add(closing).After(w.Now()) {
			want = append(want, Hour{h, w.naive(h, end).Total})
		}
	}
	check.Diff(w.t, cmp.Diff(want, got), "hours from %s to %s", from, to)
}

// forget starts the list of calls anew.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = nil
}

// sent counts calls since forget whose target and body hold all of some strings.
func (w *world) sent(parts ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, call := range w.calls {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(call, part) }) {
			n++
		}
	}
	return n
}

// faulty lets the first call whose target and body hold all of some strings fail.
func (w *world) faulty(f faults.Fault, parts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan = func(target, body string) faults.Fault {
		for _, part := range parts {
			if !strings.Contains(target+" "+body, part) {
				return faults.None
			}
		}
		w.plan = nil
		return f
	}
}

// items are a partition key's items.
func (w *world) items(pk string) []item {
	w.t.Helper()
	l := w.ledger()
	var items []item
	check.OK(w.t, l.read(context.Background(), query(pk), func(it item) error { items = append(items, it); return nil }))
	return items
}
