package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

const (
	// storeDelay is added to each round trip: about that of DynamoDB within a
	// region.
	storeDelay = 3 * time.Millisecond

	// thinkTime, for each of the clients, is what the provider of one takes on
	// average: the more clients, the longer, so that the same number of calls a
	// second reaches the store, which shares our processors and is not to be what
	// is measured.
	thinkTime = 6 * time.Millisecond

	// Ours and the baselines take turns, so that whatever else the machine does
	// meets all of them.
	turns    = 3
	turnTime = 400 * time.Millisecond
)

// latency compares what admission adds to a call before the provider's.
func latency(ctx context.Context, l *lab) ([]table, error) {
	columns := func(decimals int) []column {
		return []column{{"ours", decimals}, {"read-write", decimals}, {"ratio", 2}, {"compare-swap", decimals}, {"ratio", 2}}
	}
	p50 := table{Columns: columns(2), Title: fmt.Sprintf("Latency before the call, p50 in ms, %s added to each round trip\n"+
		"(read-write and compare-swap: the token bucket as it is usually written, with one limit.\n"+
		" Spread: 1,000 users, ours with their 3 limits. Hot: one key, one limit)", storeDelay)}
	p99 := table{Columns: columns(2), Title: "The same, p99 in ms"}
	failed := table{Columns: []column{{"ours", 0}, {"read-write", 0}, {"compare-swap", 0}}, Title: "The same, calls that failed"}
	busy := table{Columns: columns(0), Title: "Calls a second when store and clients take all of this machine; ours settles too, a write more than the others"}

	for _, keys := range []int{1000, 1} {
		where := "spread keys"
		if keys == 1 {
			where = "one hot key"
		}
		for _, clients := range []int{1, 16, 64} {
			s, err := l.compare(ctx, keys, clients, time.Duration(clients)*thinkTime)
			if err != nil {
				return nil, err
			}
			name := fmt.Sprintf("%2d at a time, %s", clients, where)
			p50.compare(name, s, func(s *sample) float64 { return s.percentile(50) })
			p50.expect(atMost, 0.6, 2, 4)
			p99.compare(name, s, func(s *sample) float64 { return s.percentile(99) })
			failed.add(name, float64(s[0].failed), float64(s[1].failed), float64(s[2].failed))
			failed.expect(exactly, 0, 0)
		}
		s, err := l.compare(ctx, keys, 64, 0)
		if err != nil {
			return nil, err
		}
		busy.compare("64 at a time, "+where, s, func(s *sample) float64 { return float64(len(s.latencies)) / s.elapsed.Seconds() })
	}
	return []table{p50, p99, failed, busy}, nil
}

// compare adds a figure of ours and of both baselines, with their ratios.
func (t *table) compare(name string, samples [3]sample, figure func(*sample) float64) {
	ours, readWrite, swap := figure(&samples[0]), figure(&samples[1]), figure(&samples[2])
	t.add(name, ours, readWrite, ratio(ours, readWrite), swap, ratio(ours, swap))
}

// ratio is 0 if there is nothing to compare with, since JSON has no infinity.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// sample is what a way to admit was seen to do.
type sample struct {
	latencies []time.Duration // of calls that were admitted
	failed    int             // nothing had to be denied, so a denial counts too
	elapsed   time.Duration
}

// percentile gives one of the latencies, in ms.
func (s *sample) percentile(p float64) float64 {
	return float64(percentile(s.latencies, p).Microseconds()) / 1000
}

// admission takes 1,000 tokens of a key. done is called when the provider has
// answered; it may be nil.
type admission func(ctx context.Context, key string) (done func() error, admitted bool, err error)

// compare measures ours and both baselines with that many clients, which choose
// among that many keys: users with the limits of the configuration, or one key
// with a single limit that is too large to deny.
func (l *lab) compare(ctx context.Context, keys, clients int, think time.Duration) ([3]sample, error) {
	var samples [3]sample
	limits := l.userLimits(l.policy.Features["docqa"])
	capacity := float64(limits[1].Capacity)
	if keys == 1 {
		limits = []bucket.Limit{{Name: policy.LimitTokens, Capacity: 1e9, Period: 24 * time.Hour, Return: bucket.OnSettle}}
		capacity = 1e9
	}
	ours, err := l.ours(ctx, limits)
	if err != nil {
		return samples, err
	}
	readWrite, err := l.baseline(ctx, capacity, (*baseline).readThenWrite)
	if err != nil {
		return samples, err
	}
	swap, err := l.baseline(ctx, capacity, (*baseline).compareAndSwap)
	if err != nil {
		return samples, err
	}
	for range turns {
		for i, a := range []admission{ours, readWrite, swap} {
			if err := samples[i].turn(ctx, a, keys, clients, think); err != nil {
				return samples, err
			}
		}
	}
	return samples, nil
}

// ours reserves before the call and settles to 30% after it.
func (l *lab) ours(ctx context.Context, limits []bucket.Limit) (admission, error) {
	_, db, name, err := l.table(ctx, storeDelay)
	if err != nil {
		return nil, err
	}
	b, err := l.buckets(db, name, time.Now)
	if err != nil {
		return nil, err
	}
	charges := make([]bucket.Charge, len(limits))
	used := make([]int64, len(limits))
	for i, limit := range limits {
		charges[i], used[i] = bucket.Charge{Limit: limit, Cost: 1}, 1
		if limit.Return == bucket.OnSettle {
			charges[i].Cost, used[i] = 1000, 300
		}
	}
	return func(ctx context.Context, key string) (func() error, bool, error) {
		d, err := b.Reserve(ctx, bucket.Request{Key: key, Charges: charges, MaxInFlight: 1000,
			Deadline: time.Now().Add(time.Minute), Note: make([]byte, 12)})
		if err != nil || d.Reservation == nil {
			return nil, false, err
		}
		return func() error { return d.Reservation.Settle(ctx, used) }, true, nil
	}, nil
}

func (l *lab) baseline(ctx context.Context, capacity float64, take func(*baseline, context.Context, string, float64) (bool, error)) (admission, error) {
	_, db, name, err := l.table(ctx, storeDelay)
	if err != nil {
		return nil, err
	}
	b := &baseline{db: db, table: name, capacity: capacity, rate: capacity / 3600}
	return func(ctx context.Context, key string) (func() error, bool, error) {
		admitted, err := take(b, ctx, key, 1000)
		return nil, admitted, err
	}, nil
}

// turn lets clients make calls, one after the other each, for a while. A
// client's provider takes up to twice the think time.
func (s *sample) turn(ctx context.Context, admit admission, keys, clients int, think time.Duration) error {
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var latencies []time.Duration
			failed := 0
			time.Sleep(upTo(2 * think))
			for ctx.Err() == nil && time.Since(start) < turnTime {
				key := fmt.Sprintf("user#%d", rand.IntN(keys))
				before := time.Now()
				done, admitted, err := admit(ctx, key)
				took := time.Since(before)
				time.Sleep(upTo(2 * think))
				if err == nil && admitted && done != nil {
					err = done()
				}
				if err != nil || !admitted {
					failed++
					continue
				}
				latencies = append(latencies, took)
			}
			mu.Lock()
			defer mu.Unlock()
			s.latencies = append(s.latencies, latencies...)
			s.failed += failed
		})
	}
	wg.Wait()
	s.elapsed += time.Since(start)
	return ctx.Err()
}

func upTo(d time.Duration) time.Duration { return time.Duration(rand.Float64() * float64(d)) }
