package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// storm lets 64 workers in 8 processes fall upon a key that nobody has used: each
// asks twice for 100 of its 5,000 tokens.
func storm(ctx context.Context, l *lab) ([]table, error) {
	const capacity, cost, asks = 5000, 100, 2
	limit := bucket.Limit{Name: policy.LimitTokens, Capacity: capacity, Period: time.Hour, Return: bucket.OnSettle}
	_, db, name, err := l.table(ctx, storeDelay)
	if err != nil {
		return nil, err
	}
	processes := make([]*bucket.Buckets, 8)
	for i := range processes {
		if processes[i], err = l.buckets(db, name, time.Now); err != nil {
			return nil, err
		}
	}
	ours := func(ctx context.Context, worker int) (bool, error) {
		d, err := processes[worker%len(processes)].Reserve(ctx, bucket.Request{Key: "user#ours", MaxInFlight: 1000,
			Charges: []bucket.Charge{{Limit: limit, Cost: cost}}, Deadline: time.Now().Add(time.Minute)})
		return d.Reservation != nil, err
	}
	b := &baseline{db: db, table: name, capacity: capacity, rate: capacity / 3600.0}
	theirs := func(ctx context.Context, _ int) (bool, error) { return b.readThenWrite(ctx, "user#theirs", cost) }

	t := table{Title: "A storm on a cold key: 64 workers, a capacity of 5,000 tokens", Columns: []column{{"asked", 0}, {"failed", 0}, {"admitted", 0}}}
	for _, way := range []struct {
		name string
		ask  func(context.Context, int) (bool, error)
	}{{"ours", ours}, {"read, then write", theirs}} {
		asked, admitted, failed := unleash(ctx, 64, asks, way.ask)
		t.add(way.name, float64(asked*cost), float64(failed), float64(admitted*cost))
		if way.name == "ours" {
			t.expect(exactly, capacity, 2)
		}
	}
	return []table{t}, ctx.Err()
}

// unleash lets workers ask at once, that often each.
func unleash(ctx context.Context, workers, asks int, ask func(context.Context, int) (bool, error)) (asked, admitted, failed int64) {
	var yes, errs atomic.Int64
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			<-start
			for range asks {
				ok, err := ask(ctx, i)
				switch {
				case err != nil:
					errs.Add(1)
				case ok:
					yes.Add(1)
				}
			}
		})
	}
	close(start)
	wg.Wait()
	return int64(workers * asks), yes.Load(), errs.Load()
}
