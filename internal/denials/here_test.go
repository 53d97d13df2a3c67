package denials

import (
	"maps"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/testclock"
)

func TestHere(t *testing.T) {
	t.Parallel()
	clock := testclock.At(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	d := NewHere(clock.Now)
	w := emf.NewOnly(Metric, d, "tokenfuse", clock.Now)
	deny := func(limit string) {
		w.Write(emf.Group{Dimensions: []emf.Dimension{{Name: "Limit", Value: limit}}, Metrics: []emf.Metric{{Name: "Denied", Unit: emf.Count, Value: 1}}})
	}
	want := func(want map[string]int64) {
		t.Helper()
		got, err := d.Count(t.Context(), clock.Now().Add(-time.Hour), clock.Now())
		check.OK(t, err)
		check.That(t, maps.Equal(got, want), "%v, want %v", got, want)
	}
	want(map[string]int64{})
	deny("tokens")
	clock.Advance(30 * time.Minute)
	deny("tokens")
	deny("fuse_open")
	w.Write(emf.Group{Metrics: []emf.Metric{{Name: "Admitted", Unit: emf.Count, Value: 1}}})
	want(map[string]int64{"tokens": 2, "fuse_open": 1})
	clock.Advance(31 * time.Minute)
	want(map[string]int64{"tokens": 1, "fuse_open": 1})
	clock.Advance(2 * time.Hour)
	deny("cv")
	want(map[string]int64{"cv": 1})
	check.Equal(t, len(d.byMinute), 1, "minutes that are kept")
}
