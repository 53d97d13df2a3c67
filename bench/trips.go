package main

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// roundTrips counts round trips to the store, of calls on the limits of the
// configuration in virtual time.
func roundTrips(ctx context.Context, l *lab) ([]table, error) {
	t := table{
		Title:   "Round trips to the store, a working day of 300 users (read, then write: 2 before the call)",
		Columns: []column{{"admitted", 0}, {"denied", 0}, {"before the call", 3}, {"in all", 3}, {"per denial", 3}},
	}
	visits := l.workload(300, 1)
	var one, eight tripCount
	var both errgroup.Group
	both.Go(func() (err error) { one, err = l.count(ctx, visits, 1); return err })
	both.Go(func() (err error) { eight, err = l.count(ctx, visits, 8); return err })
	if err := both.Wait(); err != nil {
		return nil, err
	}
	t.add("one process: before the call", one.row()...)
	t.expect(atMost, 1, 2)
	t.add("one process: in all", one.row()...)
	t.expect(atMost, 2, 3)
	t.add("8 processes that share nothing", eight.row()...)
	t.expect(atMost, 1.9, 2)
	return []table{t}, nil
}

// tripCount is the round trips of a workload.
type tripCount struct {
	admitted, denied          int64
	reserving, settling, vain int64 // of admitted calls before and after the provider's, and of denied ones
}

func (c tripCount) row() []float64 {
	n := float64(c.admitted)
	return []float64{n, float64(c.denied), float64(c.reserving) / n, float64(c.reserving+c.settling) / n,
		float64(c.vain) / max(1, float64(c.denied))}
}

// count plays a workload, each call in one of the processes at random.
func (l *lab) count(ctx context.Context, visits []visit, processes int) (tripCount, error) {
	net, db, name, err := l.table(ctx, 0)
	if err != nil {
		return tripCount{}, err
	}
	var now time.Time
	var all []*bucket.Buckets
	for range processes {
		b, err := l.buckets(db, name, func() time.Time { return now })
		if err != nil {
			return tripCount{}, err
		}
		all = append(all, b)
	}
	random := rand.New(rand.NewPCG(2, 0))
	var c tripCount
	var open openCalls
	settleUntil := func(end time.Time) error {
		for len(open) > 0 && (end.IsZero() || !open[0].ends.After(end)) {
			call := heap.Pop(&open).(openCall)
			now = call.ends
			before := net.trips.Load()
			if err := call.reservation.Settle(ctx, call.used); err != nil {
				return err
			}
			c.settling += net.trips.Load() - before
		}
		return nil
	}
	for _, v := range visits {
		if err := settleUntil(v.at); err != nil {
			return c, err
		}
		now = v.at
		before := net.trips.Load()
		d, err := all[random.IntN(processes)].Reserve(ctx, bucket.Request{
			Key: v.user, Charges: v.charges, MaxInFlight: 8, Deadline: v.at.Add(time.Minute), Note: make([]byte, 12),
		})
		if err != nil {
			return c, err
		}
		trips := net.trips.Load() - before
		if d.Reservation == nil {
			c.denied++
			c.vain += trips
			continue
		}
		c.admitted++
		c.reserving += trips
		heap.Push(&open, openCall{v.at.Add(v.lasts), d.Reservation, v.used})
	}
	if err := settleUntil(time.Time{}); err != nil {
		return c, err
	}
	if c.admitted == 0 {
		return c, errors.New("nothing was admitted")
	}
	return c, nil
}

// openCall is a call between its reserve and its settle.
type openCall struct {
	ends        time.Time
	reservation *bucket.Reservation
	used        []int64
}

// openCalls is a heap, the next to end first.
type openCalls []openCall

func (o openCalls) Len() int           { return len(o) }
func (o openCalls) Less(i, j int) bool { return o[i].ends.Before(o[j].ends) }
func (o openCalls) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *openCalls) Push(x any)        { *o = append(*o, x.(openCall)) }
func (o *openCalls) Pop() any {
	last := len(*o) - 1
	call := (*o)[last]
	*o = (*o)[:last]
	return call
}
