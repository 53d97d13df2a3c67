package bucket

import (
	"context"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// A limit of something that ends by itself may refill more slowly than items live.
func TestLife(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		period, life time.Duration
		ok           bool
	}{
		{time.Hour, 0, true},
		{time.Hour + time.Second, 0, false},
		{366 * 24 * time.Hour, time.Hour, true},
		{366 * 24 * time.Hour, time.Hour + time.Second, false},
		{time.Second, time.Hour + time.Second, false},
	} {
		b, err := New(nil, Options{Table: "t", LongestPeriod: time.Hour})
		check.OK(t, err)
		l := Limit{Name: "calls", Capacity: 20, Period: test.period, Life: test.life}
		_, err = b.Prepare(Request{Key: "pass#1", Charges: []Charge{{Limit: l, Cost: 1}}, MaxInFlight: 1, Deadline: time.Now().Add(time.Minute)})
		check.That(t, (err == nil) == test.ok, "period %s, life %s: %v", test.period, test.life, err)
	}
}

// More calls than an item can hold are an error, not a store that fails one day.
func TestMaxInFlightIsBounded(t *testing.T) {
	t.Parallel()
	b, err := New(nil, Options{Table: "t", LongestPeriod: time.Hour})
	check.OK(t, err)
	for most, ok := range map[int]bool{0: false, 1: true, MaxInFlight: true, MaxInFlight + 1: false} {
		_, err := b.Reserve(cancelled(), Request{Key: "user#1", MaxInFlight: most, Deadline: time.Now().Add(time.Minute),
			Charges: []Charge{{Limit: Limit{Name: "calls", Capacity: 20, Period: time.Hour}, Cost: 100}}}) // is denied without the store
		check.That(t, (err == nil) == ok, "%d calls in flight: %v", most, err)
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
