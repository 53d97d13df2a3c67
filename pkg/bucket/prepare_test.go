package bucket

import (
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What was prepared once may be reserved again and again: each is a call of its own,
// with a start and a hold of its own.
func TestPreparedIsReservedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.process().Prepare(w.request("user#1", Charge{Limit: tokens, Cost: 2000}))
	check.OK(t, err)
	var open []*Reservation
	for range 2 {
		w.clock.advance(time.Second)
		d, err := p.Reserve(ctx)
		check.Must(t, err == nil && d.Reservation != nil, "%+v, %v", d, err)
		if got := d.Reservation.Start(); !got.Equal(w.clock.now()) {
			t.Errorf("started at %s, asked at %s", got, w.clock.now())
		}
		open = append(open, d.Reservation)
	}
	w.wantOpen("user#1", 2)
	if d, err := p.Reserve(ctx); err != nil || len(d.Denials) != 1 {
		t.Errorf("a third call of 2000 beside 4000 of 5000: %+v, %v", d, err)
	}
	for _, r := range open {
		w.settle(r, 0)
	}
	w.wantOpen("user#1", 0)
}

// A forecast sends nothing, and refuses what a denial of a moment ago refused.
func TestForecast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	forecast := func(cost int64) Decision {
		t.Helper()
		p, err := b.Prepare(w.request("user#1", Charge{Limit: tokens, Cost: cost}))
		check.OK(t, err)
		before := w.calls.Load()
		d := p.Forecast()
		got := w.calls.Load()
		check.That(t, got == before, "a forecast took %d round trips", got-before)
		return d
	}
	if d := forecast(5001); len(d.Denials) != 1 || !d.Denials[0].Impossible {
		t.Errorf("more than the capacity: %+v", d)
	}
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 4000})), 4000)
	if d := forecast(2000); d.Refused() {
		t.Errorf("refused by what nobody denied: %+v", d)
	}
	w.deny(b, w.request("user#1", Charge{Limit: tokens, Cost: 2000}), "tokens")
	if d := forecast(2000); len(d.Denials) != 1 || d.Denials[0].Remaining != 1000 || d.Reservation != nil {
		t.Errorf("after a denial: %+v", d)
	}
	if d := forecast(1000); d.Refused() {
		t.Errorf("what still fits is refused: %+v", d)
	}
}

// A call that must have ended is neither prepared nor, if time went by meanwhile,
// reserved.
func TestDeadlineIsAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	req := w.request("user#1", Charge{Limit: tokens, Cost: 1})
	p, err := b.Prepare(req)
	check.OK(t, err)
	w.clock.advance(time.Minute)
	if d, err := p.Reserve(ctx); err == nil || d.Reservation != nil {
		t.Errorf("reserved at its deadline: %+v", d)
	}
	if _, err := b.Prepare(req); err == nil {
		t.Error("prepared at its deadline")
	}
	check.That(t, w.calls.Load() == 0 && w.item("user#1") == nil, "the store was asked")
}
