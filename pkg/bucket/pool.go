package bucket

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"
)

// Pool is a hard ceiling that many identities share: whatever any number of
// processes do, and whichever of them die, what all have committed in any rolling
// period is at most the ceiling.
//
// It is a bucket too, but one that is too hot for a write per call. Each process
// leases a slice of it with one conditional write and spends that locally. What is
// out on lease counts as spent, so the ceiling needs nothing of the processes.
//
// A bucket of capacity b and rate r lets b + r x t through in any time t, and a
// lease may be spent up to its life after it was drawn. So the ceiling X over a
// period P is split into b + r x (P + life + margin) <= X.
//
// It is safe for concurrent use.
type Pool struct {
	b     *Buckets
	key   string
	limit Limit // capacity: the burst; period: until it is refilled
	opts  PoolOptions

	// drawing is held by the one call that draws; the others wait for its lease.
	drawing chan struct{}

	mu      sync.Mutex
	leases  []*lease // those that live, or have calls open
	recent  []spent  // calls of the last lease life, oldest first
	tat     int64    // as last seen
	denied  int64    // when the pool last denied, in µs; 0: it did not
	writes  int64
	backlog []giveBack // money of ended leases, to be given back when a call ends
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

// lease is money drawn from the pool.
type lease struct {
	sent      int64         // wall clock, µs
	sentMono  time.Duration // monotonic clock
	balance   int64
	open      int // calls that started on it
	after     int64
	creditsAt int64
}

type spent struct {
	at     time.Duration // monotonic
	amount int64
}

// giveBack is money on its way from a lease back to the pool.
type giveBack struct {
	lease  *lease
	amount int64
}

const (
	// burstShare of a ceiling may be spent at once; the rest refills.
	burstShare = 4
	// sliceShare of the burst is the most that one draw takes, unless a single
	// call needs more.
	sliceShare = 100
	// busyCalls in a lease's life make a process busy enough to keep its lease
	// between calls. Others give it back: Lambda may freeze them.
	busyCalls = 4
)

// NewPool makes a process's view of a pool. key is its partition key; ceiling is
// what any rolling period may cost at most, in units of the caller's choice (at
// least 4, at most 2^53), and period is whole seconds.
func (b *Buckets) NewPool(key string, ceiling int64, period time.Duration, opts PoolOptions) (*Pool, error) {
	setDefault(&opts.Life, time.Minute)
	setDefault(&opts.Margin, 5*time.Second)
	if opts.Monotonic == nil {
		start := time.Now()
		opts.Monotonic = func() time.Duration { return time.Since(start) }
	}
	if ceiling < burstShare || ceiling > 1<<53 {
		return nil, fmt.Errorf("bucket: pool %s: ceiling %d is out of range", key, ceiling)
	}
	// rate = (ceiling - burst) / (period + life + margin), so the burst is refilled
	// in that time x burst / (ceiling - burst). Rounding up lowers the rate.
	burst := ceiling / burstShare
	span := period + opts.Life + opts.Margin
	refill, err := increment(burst, ceiling-burst, span.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("bucket: pool %s: %w", key, err)
	}
	seconds := (refill + microsPerSecond - 1) / microsPerSecond
	p := &Pool{b: b, key: key, opts: opts, drawing: make(chan struct{}, 1),
		limit: Limit{Name: "pool", Capacity: burst, Period: time.Duration(seconds) * time.Second, Return: OnSettle}}
	if err := p.limit.Validate(); err != nil {
		return nil, err
	}
	if p.limit.Period > b.opts.LongestPeriod {
		return nil, fmt.Errorf("bucket: pool %s refills in %s, above Options.LongestPeriod", key, p.limit.Period)
	}
	return p, nil
}

// Burst is the most that a single call may cost.
func (p *Pool) Burst() int64 { return p.limit.Capacity }

// Used is the share of the burst that was committed when this process last saw
// the pool, less what has been refilled since: 0 to 1, or more in debt.
func (p *Pool) Used() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(max(0, p.tat-p.b.now())) / float64(p.limit.period())
}

// Refresh asks the store how much of the burst is committed, and gives Used.
func (p *Pool) Refresh(ctx context.Context) (float64, error) {
	state, err := p.b.Peek(ctx, p.key)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	p.tat = state.tats[tatAttr("", p.limit.Name, p.limit.period())]
	p.mu.Unlock()
	return p.Used(), nil
}

// PoolReservation is money set aside for one call.
type PoolReservation struct {
	pool   *Pool
	lease  *lease
	amount int64
	once   sync.Once
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
	p.endLeases()
	for _, l := range p.leases {
		if l.balance >= amount && p.lives(l) {
			return p.take(l, amount)
		}
	}
	return nil
}

func (p *Pool) take(l *lease, amount int64) *PoolReservation {
	l.balance -= amount
	l.open++
	p.recent = append(p.recent, spent{p.opts.Monotonic(), amount})
	return &PoolReservation{pool: p, lease: l, amount: amount}
}

// lives reports whether a call may start on l. A frozen process's monotonic clock
// stands still, and a wall clock may be set back: the larger age counts.
func (p *Pool) lives(l *lease) bool {
	return p.b.now()-l.sent < p.opts.Life.Microseconds() && p.opts.Monotonic()-l.sentMono < p.opts.Life
}

// endLeases moves what is left of ended leases to the backlog: it never joins a
// newer lease, or a hoarder could keep money alive beyond a lease's life.
func (p *Pool) endLeases() {
	kept := p.leases[:0]
	for _, l := range p.leases {
		alive := p.lives(l)
		if !alive && l.balance > 0 {
			p.backlog = append(p.backlog, giveBack{l, l.balance})
			l.balance = 0
		}
		if alive || l.open > 0 {
			kept = append(kept, l)
		}
	}
	p.leases = kept
	since := p.opts.Monotonic() - p.opts.Life
	for len(p.recent) > 0 && p.recent[0].at < since {
		p.recent = p.recent[1:]
	}
}

// slice is how much to draw for a call that needs amount: half of what was lately
// reserved in a lease's life, within bounds.
func (p *Pool) slice(amount int64) int64 {
	var lately int64
	for _, s := range p.recent {
		lately += s.amount
	}
	return max(amount, min(lately/2, p.limit.Capacity/sliceShare))
}

// draw leases a slice with one conditional write. A send without an answer is
// sent again: should both apply, the first is lost until it is refilled, which the
// ceiling can bear.
func (p *Pool) draw(ctx context.Context, amount int64) (*PoolReservation, Denial, error) {
	period := p.limit.period()
	need, err := increment(amount, p.limit.Capacity, period)
	if err != nil {
		return nil, Denial{}, err
	}
	p.mu.Lock()
	slice, tat, denied := p.slice(amount), p.tat, p.denied
	p.mu.Unlock()
	if now := p.b.now(); denied != 0 && now >= denied && now-denied < denialMemory && !fits(tat, now, need, period) {
		return nil, p.denial(amount, need, tat, now), nil
	}
	t := tatAttr("", p.limit.Name, period)
	for range maxTries {
		now := p.b.now()
		if left := remaining(tat, now, p.limit.Capacity, period); tat > now && slice > left {
			slice = max(amount, left)
		}
		inc, err := increment(slice, p.limit.Capacity, period)
		if err != nil {
			return nil, Denial{}, err
		}
		l := &lease{sent: now, sentMono: p.opts.Monotonic(), balance: slice}
		w, err := p.b.write(ctx, p.key, p.move(tat, now, inc))
		p.count(1)
		if err != nil {
			return nil, Denial{}, err
		}
		if tat, err = w.item.number(t); err != nil {
			return nil, Denial{}, err
		}
		p.mu.Lock()
		p.tat, p.denied = tat, 0
		p.mu.Unlock()
		if w.applied {
			l.after = tat
			if l.creditsAt, err = w.item.number(creditsAttr("", p.limit.Name, period)); err != nil {
				return nil, Denial{}, err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.leases = append(p.leases, l)
			return p.take(l, amount), Denial{}, nil
		}
		if !fits(tat, now, need, period) {
			p.mu.Lock()
			p.denied = now
			p.mu.Unlock()
			return nil, p.denial(amount, need, tat, now), nil
		}
	}
	return nil, Denial{}, fmt.Errorf("%w: the pool changed under %d tries", ErrUnavailable, maxTries)
}

// move is the conditional write that takes inc from the pool, in the form that
// the TAT suggests.
func (p *Pool) move(tat, now, inc int64) *update {
	u := newUpdate()
	base := now
	if tat > 0 {
		base = baseFor(tat, now, inc, p.limit.period())
	}
	u.advance(tatAttr("", p.limit.Name, p.limit.period()), base, now, inc, p.limit.period())
	u.setTo(u.name(attrExpires), " = ", u.number(p.b.itemExpiry(now, p.opts.Life.Microseconds())))
	return u
}

func (p *Pool) denial(amount, need, tat, now int64) Denial {
	period := p.limit.period()
	return Denial{Limit: p.limit, Requested: amount, Remaining: remaining(tat, now, p.limit.Capacity, period),
		RetryAfter: micros(wait(tat, now, need, period))}
}

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
	unused, overrun := max(0, r.amount-used), max(0, used-r.amount)
	r.lease.open--
	if p.lives(r.lease) {
		r.lease.balance += unused
		covered := min(overrun, r.lease.balance)
		r.lease.balance -= covered
		overrun -= covered
	} else if unused > 0 {
		p.backlog = append(p.backlog, giveBack{r.lease, unused})
	}
	p.endLeases()
	if len(p.recent) < busyCalls {
		for _, l := range p.leases {
			if l.balance > 0 {
				p.backlog = append(p.backlog, giveBack{l, l.balance})
				l.balance = 0
			}
		}
	}
	backlog := p.backlog
	p.backlog = nil
	p.mu.Unlock()

	var errs []error
	if overrun > 0 {
		errs = append(errs, p.charge(ctx, overrun))
	}
	for _, g := range backlog {
		errs = append(errs, p.giveBack(ctx, g))
	}
	return errors.Join(errs...)
}

// giveBack returns money of a lease to the pool by the rule of a settle, less the
// margin for clocks. Nothing marks it as done, so a send without an answer is
// never repeated.
func (p *Pool) giveBack(ctx context.Context, g giveBack) error {
	unused := wholeMicros(g.amount, p.limit)
	after := g.lease.after - p.opts.Margin.Microseconds()
	credits := g.lease.creditsAt
	t, c := tatAttr("", p.limit.Name, p.limit.period()), creditsAttr("", p.limit.Name, p.limit.period())
	for range maxTries {
		now := p.b.now()
		back := credit(unused, after, g.lease.creditsAt, credits, now)
		if back == 0 {
			return nil // refilled by now
		}
		u := newUpdate()
		u.credit(t, c, back, g.lease.creditsAt+after-now-back)
		u.require("attribute_exists(", u.name(t), ")")
		w, err := p.b.send(ctx, p.key, u)
		p.count(1)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		tat, err := w.item.number(t)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.tat = tat
		p.mu.Unlock()
		if w.applied || w.item == nil {
			return nil
		}
		if credits, err = w.item.number(c); err != nil {
			return err
		}
	}
	return nil
}

// charge takes what was used beyond a reservation, into debt.
func (p *Pool) charge(ctx context.Context, amount int64) error {
	period := p.limit.period()
	inc, err := increment(amount, p.limit.Capacity, period)
	if err != nil {
		inc = maxIncrement
	}
	t := tatAttr("", p.limit.Name, period)
	p.mu.Lock()
	tat := p.tat
	p.mu.Unlock()
	for range maxTries {
		now := p.b.now()
		u := newUpdate()
		u.overrun(t, inc, tat, now)
		w, err := p.b.write(ctx, p.key, u)
		p.count(1)
		if err != nil {
			return err
		}
		if tat, err = w.item.number(t); err != nil {
			return err
		}
		if w.applied {
			p.mu.Lock()
			p.tat = tat
			p.mu.Unlock()
			return nil
		}
	}
	return fmt.Errorf("%w: the pool changed under %d tries", ErrUnavailable, maxTries)
}

func (p *Pool) count(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes += n
}

// Writes is how many writes this process has sent to the pool's item.
func (p *Pool) Writes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

// wholeMicros is increment rounded down: never more comes back than was taken.
func wholeMicros(amount int64, l Limit) int64 {
	hi, lo := bits.Mul64(uint64(amount), uint64(l.period()))
	q, _ := bits.Div64(hi, lo, uint64(l.Capacity)) // amount <= capacity
	return int64(q)
}
