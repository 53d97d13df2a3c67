package bucket

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// siege is a load on one pool by several processes, in virtual time on the real
// engine.
type siege struct {
	processes int
	period    time.Duration
	life      time.Duration
	lasts     time.Duration
	offset    time.Duration // clocks differ by up to this, to either side
	kills     float64       // a second and process
	faults    bool
	freezes   float64       // a second and process: its monotonic clock stands still, and it does nothing
	spread    time.Duration // in which the processes start; 0: a second
	// call gives the next call of a process: what it sets aside, what it will have
	// used, how long it takes; and the pause until the process asks again.
	call func(r *rand.Rand, at time.Duration) (worst, used int64, takes, pause time.Duration)
}

const siegeCeiling = 1_000_000

// result is what a siege came to.
type result struct {
	worstWindow int64 // the most that any rolling period committed
	used        int64
	admitted    int
	denied      int
	failed      int
	writes      int64
	rate        float64 // sustainable, a second
	burst       int64
	idle        int64 // the most that all processes held at a time for calls to come
}

// idle is what a process holds that no call has set aside.
func (p *siegeProcess) idle() int64 {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	var held int64
	for _, l := range p.pool.leases {
		held += l.balance
	}
	for _, g := range p.pool.backlog {
		held += g.amount
	}
	return held
}

type siegeProcess struct {
	pool  *Pool
	clock time.Duration // offset
	born  time.Duration
	asks  time.Duration // when it asks next
	thaws time.Duration // until then it is frozen
	froze time.Duration // how long it was, all in all
	open  []siegeCall
}

type siegeCall struct {
	r     *PoolReservation
	start time.Duration
	used  int64
	ends  time.Duration
}

func (s siege) run(t *testing.T) result {
	t.Helper()
	w := newWorld(t)
	random := rand.New(rand.NewPCG(1, 2))
	if s.faults {
		w.plan = func(int) faults.Fault {
			switch n := random.IntN(100); {
			case n < 3:
				return faults.LostReply
			case n < 5:
				return faults.LostRequest
			case n < 6:
				return faults.LateRequest
			}
			return faults.None
		}
	}
	epoch := w.clock.now()
	at := func() time.Duration { return w.clock.now().Sub(epoch) }
	var writes int64
	start := func() *siegeProcess {
		p := &siegeProcess{born: at(), asks: at() + time.Duration(random.Int64N(int64(max(time.Second, s.spread))))}
		if s.offset > 0 {
			p.clock = time.Duration(random.Int64N(int64(2*s.offset))) - s.offset
		}
		b := w.process(func(o *Options) { o.Now = func() time.Time { return w.clock.now().Add(p.clock) } })
		var err error
		p.pool, err = b.NewPool("pool#all", siegeCeiling, s.period, PoolOptions{
			Life: s.life, Margin: 5 * time.Second, Monotonic: func() time.Duration { return at() - p.born - p.froze }})
		check.OK(t, err)
		return p
	}
	ps := make([]*siegeProcess, s.processes)
	for i := range ps {
		ps[i] = start()
	}

	var res result
	var committed []*use
	res.burst = ps[0].pool.limit.Capacity
	res.rate = float64(res.burst) / ps[0].pool.limit.Period.Seconds()
	const step = 50 * time.Millisecond
	for at() < s.lasts {
		for i, p := range ps {
			if s.kills > 0 && random.Float64() < s.kills*step.Seconds() {
				for _, c := range p.open { // nobody knows what they used: the worst
					committed = append(committed, &use{lasting(c.start), c.r.amount})
				}
				writes += p.pool.Writes()
				ps[i] = start()
				continue
			}
			if s.freezes > 0 && p.thaws <= at() && random.Float64() < s.freezes*step.Seconds() {
				p.thaws = at() + time.Duration(random.Int64N(int64(4*s.life)))
			}
			if p.thaws > at() {
				p.froze += step
				continue
			}
			p.open = slices.DeleteFunc(p.open, func(c siegeCall) bool {
				if c.ends > at() {
					return false
				}
				committed = append(committed, &use{lasting(c.start), c.used})
				res.used += c.used
				_ = c.r.Settle(ctx, c.used) // a fault may lose money: that is the point
				return true
			})
			if p.asks > at() {
				continue
			}
			worst, used, takes, pause := s.call(random, at())
			r, denial, err := p.pool.Reserve(ctx, worst)
			p.asks = at() + pause
			switch {
			case err != nil:
				res.failed++
			case r == nil:
				res.denied++
				p.asks = at() + max(pause, min(denial.RetryAfter, time.Second))
			default:
				res.admitted++
				p.open = append(p.open, siegeCall{r, at(), used, at() + takes})
			}
		}
		if at()%time.Second == 0 {
			var idle int64
			for _, p := range ps {
				idle += p.idle()
			}
			res.idle = max(res.idle, idle)
		}
		if random.IntN(10) == 0 {
			check.OK(t, w.net.Deliver())
		}
		w.clock.advance(step)
	}
	for _, p := range ps {
		writes += p.pool.Writes()
		for _, c := range p.open {
			committed = append(committed, &use{lasting(c.start), c.used})
			res.used += c.used
		}
	}
	res.writes = writes
	slices.SortFunc(committed, func(a, b *use) int { return int(a.at - b.at) })
	var sum int64
	first := 0
	for _, u := range committed {
		sum += u.amount
		for committed[first].at <= u.at-lasting(s.period) {
			sum -= committed[first].amount
			first++
		}
		res.worstWindow = max(res.worstWindow, sum)
	}
	return res
}

func (r result) String() string {
	return fmt.Sprintf("the worst period committed %.3f of the ceiling; %d admitted, %d denied, %d failed, %.3f writes a call, at most %.2f of the burst idle",
		float64(r.worstWindow)/siegeCeiling, r.admitted, r.denied, r.failed, r.perCall(), float64(r.idle)/float64(r.burst))
}

func (r result) perCall() float64 { return float64(r.writes) / float64(max(1, r.admitted)) }

// eager asks for as much as it gets, and uses a random part of it.
func eager(r *rand.Rand, _ time.Duration) (int64, int64, time.Duration, time.Duration) {
	worst := 500 + r.Int64N(4500)
	return worst, 1 + r.Int64N(worst), time.Duration(r.Int64N(int64(5 * time.Second))), 100 * time.Millisecond
}

func TestCeilingHolds(t *testing.T) {
	for _, tc := range []struct {
		name string
		siege
	}{
		{"full load", siege{call: eager}},
		{"kills, faults and clocks 2 s off", siege{offset: 2 * time.Second, kills: 0.02, faults: true, call: eager}},
		{"kills, faults, clocks 2 s off, and processes that freeze", siege{offset: 2 * time.Second, kills: 0.01, freezes: 0.05, faults: true, call: eager}},
		{"many do little, some take all", siege{processes: 40, offset: 2 * time.Second, kills: 0.002, freezes: 0.02,
			call: func(r *rand.Rand, _ time.Duration) (int64, int64, time.Duration, time.Duration) {
				worst := 500 + r.Int64N(2500)
				if r.IntN(4) > 0 {
					return worst, r.Int64N(50), time.Second, 2*time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
				}
				return worst, worst, time.Second, 2 * time.Second
			}}},
		{"hoarding: long calls that return everything, then real use", siege{offset: 2 * time.Second,
			call: func(r *rand.Rand, at time.Duration) (int64, int64, time.Duration, time.Duration) {
				worst := 2000 + r.Int64N(3000)
				if phase := at % (40 * time.Second); phase < 25*time.Second {
					return worst, 0, 25*time.Second - phase, 100 * time.Millisecond
				}
				return worst, worst, time.Second, 100 * time.Millisecond
			}}},
		{"everything is used to the end", siege{offset: 2 * time.Second,
			call: func(r *rand.Rand, _ time.Duration) (int64, int64, time.Duration, time.Duration) {
				worst := 500 + r.Int64N(4500)
				return worst, worst, 10 * time.Millisecond, 100 * time.Millisecond
			}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := tc.siege
			s.processes, s.period, s.life, s.lasts = max(8, s.processes), 60*time.Second, 10*time.Second, 3*time.Minute
			res := s.run(t)
			t.Log(res)
			check.That(t, res.worstWindow <= siegeCeiling, "a period committed %d of %d", res.worstWindow, siegeCeiling)
			check.That(t, res.worstWindow >= siegeCeiling/4, "the worst period committed only %d of %d: the siege tested little", res.worstWindow, siegeCeiling)
		})
	}
}

// Under a steady load of little more than it can bear, nearly all of a pool is
// used.
func TestPoolIsUsable(t *testing.T) {
	t.Parallel()
	res := siege{processes: 8, period: 60 * time.Second, life: 10 * time.Second, lasts: 3 * time.Minute,
		call: func(r *rand.Rand, _ time.Duration) (int64, int64, time.Duration, time.Duration) {
			worst := 1000 + r.Int64N(1000)
			return worst, worst * 6 / 10, time.Second, 500 * time.Millisecond
		}}.run(t)
	sustainable := res.rate * 180
	t.Logf("%v; %.2f of the sustainable rate was used", res, float64(res.used)/sustainable)
	if float64(res.used) < 0.85*sustainable {
		t.Errorf("%d of the sustainable %.0f was used", res.used, sustainable)
	}
}

func TestSeldomCallersAreNeverDenied(t *testing.T) {
	t.Parallel()
	res := siege{processes: 8, period: time.Hour, life: time.Minute, lasts: 20 * time.Minute,
		call: func(r *rand.Rand, _ time.Duration) (int64, int64, time.Duration, time.Duration) {
			return 5000, 2000, 3 * time.Second, time.Minute
		}}.run(t)
	t.Log(res)
	check.That(t, res.denied+res.failed <= 0 && res.admitted >= 8*19, "a process that calls once a minute was refused")
}

// Processes that do little, as many of Lambda do, must not lock a pool with what they
// hold for calls that may not come. These spend next to nothing of what they reserve.
func TestLittleIsHeldIdle(t *testing.T) {
	for _, tc := range []struct {
		name  string
		worst int64 // of a call; the burst is 250,000
		stop  time.Duration
		// What is right: writes a call with half a write to spare of what leases cost that
		// are kept for their whole life, and how much of the burst may be idle.
		writes, idle float64
	}{
		{"a large pool", 72, time.Hour, 1, 0.25},
		{"one that is more than half used", 720, time.Hour, 2, 0.75},
		{"four calls each, then none", 720, time.Minute, 2.1, 0.75},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			res := siege{processes: 300, period: time.Hour, life: time.Minute, lasts: 3 * time.Minute, spread: 15 * time.Second,
				call: func(r *rand.Rand, at time.Duration) (int64, int64, time.Duration, time.Duration) {
					pause := 10*time.Second + time.Duration(r.Int64N(int64(10*time.Second)))
					if at+pause > tc.stop {
						pause = time.Hour
					}
					return tc.worst, 20, 3 * time.Second, pause
				}}.run(t)
			t.Log(res)
			check.That(t, res.denied+res.failed <= 0, "%d of 300 processes' calls were denied, %d failed", res.denied, res.failed)
			if res.perCall() > tc.writes {
				t.Errorf("%.3f writes a call, want at most %.3f", res.perCall(), tc.writes)
			}
			if idle := float64(res.idle) / float64(res.burst); idle > tc.idle {
				t.Errorf("%.2f of the burst were held idle, want at most %.2f", idle, tc.idle)
			}
		})
	}
}
