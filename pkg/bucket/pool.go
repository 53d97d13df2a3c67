package bucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Pool is a hard ceiling that many identities share: whatever any number of
// processes do, and whichever of them die, what all have committed in any rolling
// period is at most the ceiling. (An amount used beyond what was reserved for it is
// committed before the pool can know; it becomes a debt, and comes on top.)
//
// It is a bucket too, but one that is too hot for a write per call. Each process
// leases a slice of it with one conditional write and spends that locally. What is
// out on lease counts as spent, so the ceiling needs nothing of the processes.
// Ceiling says how the figures are chosen.
//
// It is safe for concurrent use.
type Pool struct {
	b     *Buckets
	key   string
	limit Limit // capacity: the burst; period: until it is refilled
	opts  PoolOptions

	// drawing is held by the one call that draws; the others wait for its lease.
	drawing chan struct{}

	mu sync.Mutex
	till
	last   poolState // as last seen
	denied micros    // when the pool last denied; 0: it did not
	writes int64
}

// PoolOptions are the times by which a pool's ceiling is kept. The zero value
// is right for production.
type PoolOptions struct {
	// Life is how long after the draw was sent a call may start on a lease
	// (default 60 s).
	Life time.Duration
	// Margin is by how much clocks may differ and writes be late (default 5 s).
	Margin time.Duration
	// Monotonic is a clock that only runs while the process does (default: since
	// the pool was made). A lease's age is the larger of this and Options.Now.
	Monotonic func() time.Duration
}

// NewPool makes a process's view of a pool. key is its partition key; ceiling is
// what any rolling period may cost at most, in units of the caller's choice
// (MinCeiling to MaxCeiling), and period is whole seconds.
func (b *Buckets) NewPool(key string, ceiling int64, period time.Duration, opts PoolOptions) (*Pool, error) {
	setDefault(&opts.Life, defaultLife)
	setDefault(&opts.Margin, defaultMargin)
	if opts.Monotonic == nil {
		start := time.Now()
		opts.Monotonic = func() time.Duration { return time.Since(start) }
	}
	c := Ceiling{ceiling, period}
	refill, err := c.refill(opts.Life + opts.Margin)
	if err != nil {
		return nil, fmt.Errorf("bucket: pool %s: %w", key, err)
	}
	if refill > b.opts.LongestPeriod {
		return nil, fmt.Errorf("bucket: pool %s refills in %s, above Options.LongestPeriod", key, refill)
	}
	return &Pool{b: b, key: key, opts: opts, drawing: make(chan struct{}, 1), till: till{life: lasting(opts.Life)},
		limit: Limit{Name: "pool", Capacity: c.Burst(), Period: refill, Return: OnSettle}}, nil
}

// Burst is the most that a single call may cost.
func (p *Pool) Burst() int64 { return p.limit.Capacity }

// Used is the share of the burst that was committed when this process last saw
// the pool, less what has been refilled since: 0 to 1, or more in debt.
func (p *Pool) Used() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.committed()) / float64(p.limit.period())
}

// committed is how much of the burst is, in time of its refill, as far as is known.
func (p *Pool) committed() micros { return max(0, p.last.tat-p.b.now()) }

// PoolReservation is money set aside for one call.
type PoolReservation struct {
	*spending
	pool *Pool
	once sync.Once
}

// Reserve sets aside amount, from the local lease if it can, else from a fresh
// one. A nil reservation is a denial, which says how long to wait. The error is
// ErrUnavailable.
func (p *Pool) Reserve(ctx context.Context, amount int64) (*PoolReservation, Denial, error) {
	if amount < 1 {
		return nil, Denial{}, errors.New("bucket: pool: amount is below 1")
	}
	if amount > p.limit.Capacity {
		return nil, Denial{Limit: p.limit, Requested: amount, Remaining: p.limit.Capacity, Impossible: true}, nil
	}
	if r := p.fromLease(amount); r != nil {
		return r, Denial{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.b.opts.ReserveTimeout)
	defer cancel()
	select {
	case p.drawing <- struct{}{}:
		defer func() { <-p.drawing }()
	case <-ctx.Done():
		return nil, Denial{}, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	if r := p.fromLease(amount); r != nil {
		return r, Denial{}, nil
	}
	return p.draw(ctx, amount)
}

// fromLease takes amount from a lease that lives, or gives nil.
func (p *Pool) fromLease(amount int64) *PoolReservation {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.start(amount, p.now()); s != nil {
		return &PoolReservation{spending: s, pool: p}
	}
	return nil
}

// now is the time by both clocks.
func (p *Pool) now() instant { return instant{p.b.now(), lasting(p.opts.Monotonic())} }

// keptFor is how long after its draw a lease is kept.
func (p *Pool) keptFor() micros { return keepFor(p.life, p.committed(), p.limit.period()) }

// Settle replaces what was set aside by what was used, once. What was not used
// goes back to its lease while that lives, else to the pool; what was used beyond
// it is charged at once. ctx should not be the request's own. An error leaves
// money counted as spent that was not, or, for an overrun, the other way round.
func (r *PoolReservation) Settle(ctx context.Context, used int64) error {
	var err error
	r.once.Do(func() { err = r.pool.settle(ctx, r, max(0, used)) })
	return err
}

func (p *Pool) settle(ctx context.Context, r *PoolReservation, used int64) error {
	ctx, cancel := context.WithTimeout(ctx, p.b.opts.SettleTimeout)
	defer cancel()
	p.mu.Lock()
	overrun, backlog := p.close(r.spending, used, p.now(), p.keptFor())
	p.mu.Unlock()
	var errs []error
	if overrun > 0 {
		errs = append(errs, p.charge(ctx, overrun))
	}
	for _, rest := range backlog {
		errs = append(errs, p.repay(ctx, rest))
	}
	return errors.Join(errs...)
}

// Release gives back what this process holds of the pool and no call has set aside. It is
// for a process that ends; what it fails to give back is refilled in time.
func (p *Pool) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.b.opts.SettleTimeout)
	defer cancel()
	p.mu.Lock()
	backlog := p.empty(p.now())
	p.mu.Unlock()
	var errs []error
	for _, rest := range backlog {
		errs = append(errs, p.repay(ctx, rest))
	}
	return errors.Join(errs...)
}

func (p *Pool) count() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes++
}

// Writes is how many writes this process has sent to the pool's item.
func (p *Pool) Writes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}
