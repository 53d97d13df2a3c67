package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// A month of hours takes one query for each calendar month once they are rolled up,
// however many had no calls.
func TestHours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	from := noon.Add(-30 * 24 * time.Hour) // 31 January
	for _, d := range []time.Duration{-1, 0, 59*time.Minute + 59*time.Second, time.Hour, 24 * time.Hour, 15 * 24 * time.Hour, 28*24*time.Hour - time.Hour, 28*24*time.Hour + 11*time.Hour + 59*time.Minute, 29 * 24 * time.Hour, 30*24*time.Hour - 1} {
		w.record(l, w.event(from.Add(d)))
	}
	w.Set(noon.Add(closing))
	w.wantHours(l, from, noon)
	w.forget()
	w.wantHours(l, from, noon)
	check.Equal(t, w.sent(), 3, "calls of the store")
	// Parts of hours do not count.
	w.wantHours(l, from.Add(time.Microsecond), noon.Add(-time.Microsecond))
	w.wantHours(l, from.Add(time.Minute), from.Add(time.Hour))
	w.wantHours(l, from, from)
	w.wantHours(l, from.Add(12*time.Hour), from.Add(12*time.Hour))
}

func TestHoursRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	for name, length := range map[string]time.Duration{"reversed": -time.Second, "too long": Retention + 1} {
		if _, err := l.Hours(context.Background(), noon.Add(-length), noon); err == nil {
			t.Errorf("%s: summed", name)
		}
	}
}

// An hour counts when no settle of it can come any more.
func TestHourCloses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.record(l, w.event(noon.Add(time.Second)))
	for _, tt := range []struct {
		at    time.Time
		hours int
	}{
		{noon.Add(time.Hour), 1},
		{noon.Add(time.Hour + closing - time.Microsecond), 1},
		{noon.Add(time.Hour + closing), 2},
	} {
		w.Set(tt.at)
		w.wantHours(l, noon.Add(-time.Hour), noon.Add(10*time.Hour))
		if hours, err := l.Hours(context.Background(), noon.Add(-time.Hour), noon.Add(10*time.Hour)); err != nil || len(hours) != tt.hours {
			t.Errorf("at %s: %v, %v, want %d", tt.at, hours, err, tt.hours)
		}
	}
}

// An hour is made of the roll-ups of its minutes.
func TestHourOfMinutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.ledger()
	w.fill(l, noon)
	w.Set(noon.Add(2 * time.Hour))
	w.wantSum(l, noon, noon.Add(time.Hour))
	w.forget()
	w.wantHours(l, noon, noon.Add(time.Hour))
	check.Equal(t, w.sent("Query"), 2, "queries")
}

func TestKeys(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 4, 11, 59, 0, time.UTC)
	p := partition{minute(at.Unix() / 60), 12}
	h := p.minute.hour()
	got := []string{p.key(), h.rollUpsKey(), p.rollUpSort(), h.key(), h.sort()}
	if diff := cmp.Diff([]string{"2026-11-30T04:11#12", "minutes#2026-11-30T04", "11#12", "hours#2026-11", "2026-11-30T04"}, got); diff != "" {
		t.Error(diff)
	}
	if back, ok := parseRollUpSort(h, p.rollUpSort()); !ok || back != p {
		t.Errorf("%v became %v", p, back)
	}
	for _, bad := range []string{"", "#", "11", "11#", "#1", "11#01", "1#1", "60#1", "-1#1", "11#x", "11#1#1"} {
		if _, ok := parseRollUpSort(h, bad); ok {
			t.Errorf("%q is taken for a sort key", bad)
		}
	}
}
