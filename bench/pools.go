package main

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

const (
	leaseLife = time.Minute
	// poolTime is how long a load lasts, in virtual time, unless it comes to
	// poolCalls earlier.
	poolTime  = 5 * leaseLife
	poolCalls = 12_000

	busy    = 100 * time.Millisecond // between two calls of an instance
	quarter = 15 * time.Second       // just often enough to keep a lease between calls
	seldom  = time.Minute
)

// poolWrites counts the writes to pools, which come on top of the two to a call's
// own identity, by calls of anonymous callers on the pools of the configuration in
// virtual time.
func poolWrites(ctx context.Context, l *lab) ([]table, error) {
	tier := l.policy.Tiers[policy.Anonymous]
	_, worst := l.policy.WorstCase(l.policy.Features["docqa"], tier)
	loads := poolLoads()
	pools := l.policy.PoolsFor(tier)
	counts := make([][]poolCount, len(pools))
	var all errgroup.Group
	all.SetLimit(4)
	for i, pool := range pools {
		counts[i] = make([]poolCount, len(loads))
		for j, load := range loads {
			all.Go(func() (err error) { counts[i][j], err = l.draw(ctx, pool, int64(worst), load); return err })
		}
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	var tables []table
	for i, pool := range pools {
		t := table{
			Title: fmt.Sprintf("Writes to the pool %s, $%s in %s: calls of at most $%s use 10 to 50%% of it and take 1.5 to 4.5 s",
				pool.Name, pool.Ceiling, pool.Period, worst),
			Columns: []column{{"seconds", 0}, {"admitted", 0}, {"refused", 0}, {"per admitted", 3}, {"per refused", 3}, {"idle, % of burst", 1}},
		}
		for j, load := range loads {
			t.add(load.String(), counts[i][j].row()...)
			switch {
			case load.every == busy && pool.Name == policy.PoolAll: // which bears one; the other does not
				t.expect(atMost, 0.1, 3)
			case load.every == seldom && load.instances == 8, load.every == quarter && pool.Name == policy.PoolAll:
				t.expect(exactly, 0, 2)
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// poolLoad is calls by instances that share nothing but the pool.
type poolLoad struct {
	instances int
	every     time.Duration // between two calls of an instance, from half to one and a half
}

// poolLoads leaves out what would come to poolCalls before a lease's life is over.
func poolLoads() []poolLoad {
	var loads []poolLoad
	for _, every := range []time.Duration{busy, time.Second, 10 * time.Second, seldom} {
		for _, instances := range []int{1, 8, 200} {
			if load := (poolLoad{instances, every}); load.lasts() >= leaseLife {
				loads = append(loads, load)
			}
		}
	}
	return append(loads, poolLoad{300, quarter})
}

func (p poolLoad) lasts() time.Duration {
	return min(poolTime, poolCalls*p.every/time.Duration(p.instances))
}

func (p poolLoad) String() string {
	instances := "1 instance"
	if p.instances > 1 {
		instances = fmt.Sprintf("%d instances", p.instances)
	}
	if p.every < time.Second {
		return fmt.Sprintf("%s, %d calls/s each", instances, time.Second/p.every)
	}
	return fmt.Sprintf("%s, a call every %.0f s each", instances, p.every.Seconds())
}

// poolCount is what a load came to.
type poolCount struct {
	lasted            time.Duration
	admitted, refused int64
	writes, vain      int64   // for admitted calls, and for refused ones
	idle              float64 // most of the burst that neither was spent nor belonged to an open call, and yet was not in the pool
}

func (c poolCount) row() []float64 {
	return []float64{c.lasted.Seconds(), float64(c.admitted), float64(c.refused), float64(c.writes) / float64(max(1, c.admitted)),
		float64(c.vain) / float64(max(1, c.refused)), 100 * c.idle}
}

// draw plays a load on a pool.
func (l *lab) draw(ctx context.Context, pool *policy.Pool, worst int64, load poolLoad) (poolCount, error) {
	_, db, name, err := l.table(ctx, 0)
	if err != nil {
		return poolCount{}, err
	}
	r := &poolRun{load: load, worst: worst, random: rand.New(rand.NewPCG(3, 0)), count: poolCount{lasted: load.lasts()}}
	epoch := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	for range load.instances {
		b, err := l.buckets(db, name, func() time.Time { return epoch.Add(r.at) })
		if err != nil {
			return poolCount{}, err
		}
		p, err := b.NewPool(keys.Pool.Key(pool.Name), int64(pool.Ceiling), pool.Period,
			bucket.PoolOptions{Life: leaseLife, Monotonic: func() time.Duration { return r.at }})
		if err != nil {
			return poolCount{}, err
		}
		// What can never fit is denied without the store, and the denial tells the
		// limit.
		_, denial, err := p.Reserve(ctx, p.Burst()+1)
		if err != nil {
			return poolCount{}, err
		}
		r.owed.refill = denial.Limit.Period
		r.ahead.add(time.Duration(r.random.Int64N(int64(load.every))), func() error { return r.call(ctx, p) })
	}
	for len(r.ahead) > 0 {
		next := heap.Pop(&r.ahead).(event)
		r.at = next.at
		if err := next.happen(); err != nil {
			return r.count, err
		}
	}
	if r.count.admitted == 0 {
		return r.count, errors.New("nothing was admitted")
	}
	return r.count, nil
}

// poolRun is a load under way.
type poolRun struct {
	load   poolLoad
	worst  int64
	random *rand.Rand
	at     time.Duration
	ahead  timeline
	owed   owed
	count  poolCount
}

// about is a time from half of d to one and a half.
func (r *poolRun) about(d time.Duration) time.Duration {
	return d/2 + time.Duration(r.random.Int64N(int64(d)))
}

// call is a call of an instance, which then makes the next.
func (r *poolRun) call(ctx context.Context, p *bucket.Pool) error {
	if r.at > r.load.lasts() {
		return nil
	}
	r.ahead.add(r.at+r.about(r.load.every), func() error { return r.call(ctx, p) })
	before := p.Writes()
	reservation, _, err := p.Reserve(ctx, r.worst)
	if err != nil {
		return err
	}
	writes := p.Writes() - before
	if reservation == nil {
		r.count.refused++
		r.count.vain += writes
		return nil
	}
	r.count.admitted++
	r.count.writes += writes
	r.owe(p, r.worst, writes > 0)
	used := r.worst * (10 + r.random.Int64N(41)) / 100
	r.ahead.add(r.at+r.about(3*time.Second), func() error {
		before := p.Writes()
		if err := reservation.Settle(ctx, used); err != nil {
			return err
		}
		writes := p.Writes() - before
		r.count.writes += writes
		r.owe(p, used-r.worst, writes > 0)
		return nil
	})
	return nil
}

// owe takes an amount into account. After a write p has just seen the pool as it
// is, and what the pool lacks beyond what is owed to it is idle.
func (r *poolRun) owe(p *bucket.Pool, amount int64, wrote bool) {
	r.owed.change(float64(amount)/float64(p.Burst()), r.at)
	if wrote {
		r.count.idle = max(r.count.idle, p.Used()-r.owed.share)
	}
}

// owed is the share of its burst that a pool would lack if nothing were on lease
// but what open calls may cost.
type owed struct {
	share  float64
	at     time.Duration
	refill time.Duration // of the whole burst
}

func (o *owed) change(share float64, at time.Duration) {
	refilled := (at - o.at).Seconds() / o.refill.Seconds()
	o.share, o.at = max(0, max(0, o.share-refilled)+share), at
}

// event is something that happens at a time.
type event struct {
	at     time.Duration
	happen func() error
}

// timeline is a heap of what lies ahead, the next event first.
type timeline []event

func (t *timeline) add(at time.Duration, happen func() error) { heap.Push(t, event{at, happen}) }

func (t timeline) Len() int           { return len(t) }
func (t timeline) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timeline) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timeline) Push(x any)        { *t = append(*t, x.(event)) }
func (t *timeline) Pop() any {
	last := len(*t) - 1
	next := (*t)[last]
	*t = (*t)[:last]
	return next
}
