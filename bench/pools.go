package main

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// poolLoad is calls that draw on a pool.
type poolLoad struct {
	instances int
	every     time.Duration // of one instance
}

func (p poolLoad) String() string {
	often := fmt.Sprintf("a call in %s", p.every)
	if p.every < time.Second {
		often = fmt.Sprintf("%d calls/s", time.Second/p.every)
	}
	return fmt.Sprintf("%3d x %s", p.instances, often)
}

const (
	poolTime  = 5 * time.Minute // of virtual time, five lives of a lease
	poolCalls = 12_000          // at most; with more, the time is shorter
)

// poolWrites counts the writes to the pools of the configuration, which come on
// top of the two of a call's own identity, in virtual time.
func poolWrites(ctx context.Context, l *lab) ([]table, error) {
	tier := l.policy.Tiers[policy.Anonymous]
	feature := l.policy.Features["docqa"]
	_, worst := l.policy.WorstCase(feature, tier)
	var loads []poolLoad
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute} {
		for _, instances := range []int{1, 8, 200} {
			loads = append(loads, poolLoad{instances, every})
		}
	}
	var tables []table
	for _, pool := range l.policy.PoolsFor(tier) {
		t := table{
			Title: fmt.Sprintf("Writes to the pool %s ($%s in %s) by calls of at most $%s, 30%% of it used after 3 s",
				pool.Name, pool.Ceiling, pool.Period, worst),
			Columns: []column{{"seconds", 0}, {"admitted", 0}, {"refused", 0}, {"writes per admitted", 3}, {"idle on lease, % of burst", 1}},
		}
		results := make([]poolResult, len(loads))
		var all errgroup.Group
		all.SetLimit(4)
		for i, load := range loads {
			all.Go(func() (err error) { results[i], err = l.drawOn(ctx, pool, int64(worst), load); return err })
		}
		if err := all.Wait(); err != nil {
			return nil, err
		}
		for i, r := range results {
			t.add(loads[i].String(), r.row()...)
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// poolResult is what a load came to.
type poolResult struct {
	lasted            time.Duration
	admitted, refused int64
	writes            int64
	idle              float64 // the most of the burst that was on lease and not set aside for a call
}

func (r poolResult) row() []float64 {
	return []float64{r.lasted.Seconds(), float64(r.admitted), float64(r.refused), float64(r.writes) / float64(max(1, r.admitted)), 100 * r.idle}
}

// drawOn plays a load on a pool. Instances share nothing else.
func (l *lab) drawOn(ctx context.Context, pool *policy.Pool, worst int64, load poolLoad) (poolResult, error) {
	_, db, name, err := l.table(ctx, 0)
	if err != nil {
		return poolResult{}, err
	}
	var at time.Duration
	epoch := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	random := rand.New(rand.NewPCG(3, 0))
	spread := func(d time.Duration) time.Duration { return d/2 + time.Duration(random.Int64N(int64(d))) }
	var r poolResult
	var queue timeline

	// What would be committed if nothing lay on leases, as a share of the burst.
	var owed float64
	var owedAt time.Duration
	var refill time.Duration
	owe := func(share float64) {
		owed = max(0, owed-(at-owedAt).Seconds()/refill.Seconds()) + share
		owed = max(0, owed)
		owedAt = at
	}
	end := min(poolTime, poolCalls*load.every/time.Duration(load.instances))
	for range load.instances {
		b, err := l.buckets(db, name, func() time.Time { return epoch.Add(at) })
		if err != nil {
			return poolResult{}, err
		}
		p, err := b.NewPool("pool#"+pool.Name, int64(pool.Ceiling), pool.Period, bucket.PoolOptions{
			Monotonic: func() time.Duration { return at }})
		if err != nil {
			return poolResult{}, err
		}
		_, d, _ := p.Reserve(ctx, p.Burst()+1)
		refill = d.Limit.Period
		share := func(n int64) float64 { return float64(n) / float64(p.Burst()) }
		var writes int64
		look := func() {
			if w := p.Writes(); w > writes {
				r.writes += w - writes
				writes = w
				r.idle = max(r.idle, p.Used()-owed)
			}
		}
		var call func() error
		call = func() error {
			if at > end {
				return nil
			}
			queue.add(at+spread(load.every), call)
			res, _, err := p.Reserve(ctx, worst)
			if err != nil {
				return err
			}
			if res == nil {
				r.refused++
				owe(0)
				look()
				return nil
			}
			r.admitted++
			owe(share(worst))
			look()
			used := worst * (10 + random.Int64N(41)) / 100
			queue.add(at+spread(3*time.Second), func() error {
				err := res.Settle(ctx, used)
				owe(-share(worst - used))
				look()
				return err
			})
			return nil
		}
		queue.add(time.Duration(random.Int64N(int64(load.every))), call)
	}
	for len(queue) > 0 {
		next := heap.Pop(&queue).(event)
		at = next.at
		if err := next.do(); err != nil {
			return r, err
		}
	}
	r.lasted = end
	return r, nil
}

type event struct {
	at time.Duration
	do func() error
}

// timeline is a heap, the next event first.
type timeline []event

func (t *timeline) add(at time.Duration, do func() error) { heap.Push(t, event{at, do}) }

func (t timeline) Len() int           { return len(t) }
func (t timeline) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timeline) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timeline) Push(x any)        { *t = append(*t, x.(event)) }
func (t *timeline) Pop() any {
	last := len(*t) - 1
	e := (*t)[last]
	*t = (*t)[:last]
	return e
}
