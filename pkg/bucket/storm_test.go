package bucket

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// 64 workers in 8 processes meet on a key that nobody has used: exactly its
// capacity is admitted, not a token more and not one less.
func TestColdKeyStorm(t *testing.T) {
	w := newWorld(t)
	var processes []*Buckets
	for range 8 {
		processes = append(processes, w.process())
	}
	start := make(chan struct{})
	var mu sync.Mutex
	var admitted, asked int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			<-start
			for range 2 {
				req := w.request("user#cold", Charge{Limit: tokens, Cost: 100})
				req.MaxInFlight = 1000
				d, err := processes[i%8].Reserve(ctx, req)
				mu.Lock()
				asked += 100
				if err != nil {
					t.Error(err)
				} else if d.Reservation != nil {
					admitted += 100
				}
				mu.Unlock()
			}
		})
	}
	close(start)
	wg.Wait()
	check.That(t, asked == 12_800 && admitted == 5000, "%d of %d admitted, want exactly 5000", admitted, asked)
	w.wantOpen("user#cold", 50)
}

// 64 workers in 4 processes, 100 keys, mixed costs, settles in between, real time:
// in every window, what was really used is at most capacity + rate x window.
func TestStormOnManyKeys(t *testing.T) {
	w := newWorld(t)
	quick := Limit{Name: "tokens", Capacity: 1000, Period: 10 * time.Second, Return: OnSettle}
	real := func(o *Options) { o.Now = time.Now }
	processes := []*Buckets{w.process(real), w.process(real), w.process(real), w.process(real)}
	var mu sync.Mutex
	used := map[string][]*use{}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(i)))
			for range 60 {
				key := fmt.Sprintf("user#%d", random.IntN(100))
				if random.IntN(4) == 0 {
					key = "user#hot"
				}
				cost := 1 + random.Int64N(400)
				d, err := processes[random.IntN(4)].Reserve(ctx, Request{Key: key, Charges: []Charge{{Limit: quick, Cost: cost}},
					MaxInFlight: 100, Deadline: time.Now().Add(time.Minute)})
				if err != nil {
					t.Error(err)
					continue
				}
				if d.Reservation == nil {
					continue
				}
				amount := random.Int64N(cost + 1)
				mu.Lock()
				used[key] = append(used[key], &use{d.Reservation.start, amount})
				mu.Unlock()
				if err := d.Reservation.Settle(ctx, []int64{amount}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	calls := 0
	for key, u := range used {
		calls += len(u)
		// The reserve's time is taken before its write: up to a round trip early.
		over := excess(u, quick.Capacity, quick.period())
		most := 1 + quick.Capacity*int64(second)/int64(quick.period())
		check.That(t, over <= most, "%s: a window used %d more than it may", key, over)
	}
	check.That(t, calls >= 1000, "only %d calls were admitted: the storm tested little", calls)
	for key := range used {
		w.wantOpen(key, 0)
	}
}
