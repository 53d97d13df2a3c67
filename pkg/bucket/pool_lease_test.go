package bucket

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// pond is a pool in the abstract: its state as the store has it, and what is drawn
// from it by processes whose clocks differ. Times are ticks.
type pond struct {
	random         *rand.Rand
	period, margin micros
	now            micros
	tat, credits   micros
	drawn          []*drawn
	open           []*drawn
	offsets        []micros
	exempt         micros // what the refunds get wrong on purpose
	forgets        bool   // leases keep their TAT when they give back
}

// drawn is a lease and what became of it.
type drawn struct {
	lease
	at    micros // the true time
	clock micros // its process's offset
	spent micros // what is committed in the end
	lost  micros // unused, but not given back
	held  micros // how long
}

func (p *pond) draw() {
	clock := p.offsets[p.random.IntN(len(p.offsets))]
	now, inc := p.now+clock, 1+randomTime(p.random, []micros{4, p.period / 2, p.period}[p.random.IntN(3)])
	if max(p.tat, now)+inc > now+p.period {
		return
	}
	p.tat = max(p.tat, now) + inc
	d := &drawn{lease: lease{drawn: instant{now, now}, inc: inc, after: p.tat, below: beneath(p.tat, inc, now), credits: p.credits},
		at: p.now, clock: clock, spent: inc}
	p.drawn = append(p.drawn, d)
	if p.random.IntN(20) > 0 { // else the process dies
		p.open = append(p.open, d)
	}
}

// giveBack returns a part of a lease, or the last of it.
func (p *pond) giveBack(i int, last bool) {
	d := p.open[i]
	unused := randomTime(p.random, d.inc+1)
	if p.random.IntN(3) == 0 {
		unused = d.inc
	}
	now := p.now + d.clock
	credits := d.credits // as first guessed, and then as the store says
	for {
		back, most, bounded := d.refund(unused, p.margin, credits, d.age(instant{now, now})+p.exempt)
		if back > 0 && bounded && p.credits > most {
			credits = p.credits
			continue
		}
		fate := p.random.IntN(10) // 0: the request is lost, 1: the reply
		d.sendBack(back)
		if p.forgets {
			d.after += back
		}
		if fate > 0 {
			p.tat -= back
			p.credits += back
		}
		if fate > 1 {
			d.arrived(back)
		}
		d.spent -= unused
		d.inc -= unused - back // what came back as refilled is not asked for again
		d.lost += unused - back
		d.held = p.now - d.at
		break
	}
	if last {
		p.open = slices.Delete(p.open, i, i+1)
	}
}

func (p *pond) history(steps int) {
	pace := []micros{2, 6, 60}[p.random.IntN(3)]
	for n := 0; n < steps || len(p.open) > 0; n++ {
		if p.random.IntN(3) == 0 {
			p.now += randomTime(p.random, pace)
		}
		if n < steps && p.random.IntN(2) == 0 {
			p.draw()
		} else if len(p.open) > 0 {
			i := []int{0, len(p.open) - 1, p.random.IntN(len(p.open))}[p.random.IntN(3)]
			p.giveBack(i, n >= steps || p.random.IntN(2) == 0)
		}
	}
}

// beyond is by how much what was committed passes the period in the worst window.
func (p *pond) beyond() micros {
	var level, worst micros // a TAT of what was really spent
	slices.SortStableFunc(p.drawn, func(a, b *drawn) int { return cmp.Compare(a.at, b.at) })
	for _, d := range p.drawn {
		level = max(level, d.at) + d.spent
		worst = max(worst, level-d.at-p.period)
	}
	return worst
}

// Whatever the order in which leases are drawn, given back in parts, lost on the way
// or left by dead processes, and by clocks that differ by up to the margin: what is
// spent in any time t is at most the burst and what refills in t and the margin.
// And the other way round: what is not used is given back but for at most what
// refilled while the lease was held.
func TestRefundsOfLeases(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30_000) {
		random := rand.New(rand.NewPCG(7, seed))
		p := &pond{random: random, period: 60, now: 1000}
		p.offsets = []micros{0}
		if seed%2 == 0 {
			p.margin, p.offsets = 4, []micros{-2, 0, 1, 2}
		}
		p.history(10 + random.IntN(50))
		over := p.beyond()
		check.Must(t, over <= p.margin, "seed %d: %d more were spent than the burst and the refill", seed, over)
		for _, d := range p.drawn {
			check.Must(t, d.lost <= d.held, "seed %d: of a lease held for %d, %d were unused and not given back", seed, d.held, d.lost)
		}
	}
}

// The test above finds a refund that forgets what was refilled, and a lease that forgets
// what it has given back.
func TestWrongRefundsAreFound(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]pond{
		"what was refilled":   {exempt: -60},
		"what was given back": {forgets: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(400_000) {
				random := rand.New(rand.NewPCG(7, seed))
				p := wrong
				p.random, p.period, p.now, p.offsets = random, 60, 1000, []micros{0}
				p.history(10 + random.IntN(50))
				if p.beyond() > 0 {
					return
				}
			}
			t.Error("no history is hard enough")
		})
	}
}

// A lease's age is that of the clock that says more.
func TestAgeOfALease(t *testing.T) {
	t.Parallel()
	l := lease{drawn: instant{1000, 50}}
	for _, tc := range []struct {
		now  instant
		want micros
	}{
		{instant{1010, 60}, 10}, {instant{1010, 52}, 10}, {instant{1002, 60}, 10}, {instant{900, 60}, 10}, {instant{900, 50}, 0},
	} {
		check.Equal(t, l.age(tc.now), tc.want, "at %+v", tc.now)
	}
}

// A clock that was set back gives nothing back that was refilled.
func TestRefundByAClockSetBack(t *testing.T) {
	t.Parallel()
	const minute = 60 * second
	l := lease{drawn: instant{1000 * minute, 0}, inc: minute, after: 1001 * minute}
	if back, _, _ := l.refund(minute, 0, 0, l.age(instant{900 * minute, 2 * minute})); back != 0 {
		t.Errorf("%d came back of what was refilled", back)
	}
}

// A lease is kept for its life while the pool has room, and for less as it fills.
func TestKeepFor(t *testing.T) {
	t.Parallel()
	const life, period = 6000, 1_000_000
	for _, tc := range []struct{ committed, want micros }{
		{0, life}, {500_000, life}, {500_001, life / 2}, {625_000, life / 4}, {750_000, life / 16}, {1_000_000, life / 16}, {1 << 62, life / 16},
	} {
		got := keepFor(life, tc.committed, period)
		check.That(t, got >= tc.want-1 && got <= tc.want, "with %d of %d committed: %d, want %d", tc.committed, period, got, tc.want)
	}
}

// What calls do with the money that a process holds, step by step: an overrun is covered
// by what the lease has left, what a call of a busy process leaves stays for the next,
// and what an ended lease had goes back and joins no other.
func TestTill(t *testing.T) {
	t.Parallel()
	at := func(s micros) instant { return instant{s * second, s * second} }
	till := till{life: 60 * second}
	if s := till.start(1, at(0)); s != nil {
		t.Fatalf("%+v without a lease", s)
	}
	l := &lease{drawn: at(0), balance: 100}
	open := []*spending{till.startOn(l, 10, at(0))}
	for range busyCalls - 1 {
		open = append(open, till.start(10, at(1)))
	}
	check.Must(t, l.balance == 60 && l.open == busyCalls, "a balance of %d with %d calls open, want 60 and %d", l.balance, l.open, busyCalls)
	for _, tc := range []struct{ used, overrun, balance int64 }{
		{4, 0, 66},  // 6 of 10 come back
		{30, 0, 46}, // 20 more than 10 are covered
		{100, 44, 0},
	} {
		overrun, backlog := till.close(open[0], tc.used, at(2), till.life)
		open = open[1:]
		check.That(t, overrun == tc.overrun && len(backlog) == 0 && l.balance == tc.balance,
			"used %d: an overrun of %d, %d go back, %d are left", tc.used, overrun, len(backlog), l.balance)
	}
	if s := till.start(1, at(2)); s != nil {
		t.Error("money from nothing")
	}
	newer := &lease{drawn: at(50), balance: 20}
	last := till.startOn(newer, 20, at(50))
	overrun, backlog := till.close(open[0], 0, at(60), till.life)
	check.That(t, overrun == 0 && len(backlog) == 1 && backlog[0] == (unspent{l, 10}) && newer.balance == 0,
		"an ended lease: an overrun of %d, %+v go back, the newer has %d", overrun, backlog, newer.balance)
	// Not busy any more: nothing is kept.
	overrun, backlog = till.close(last, 5, at(100), till.life)
	check.That(t, overrun == 0 && len(backlog) == 1 && backlog[0] == (unspent{newer, 15}) && newer.balance == 0 && len(till.recent) == 1,
		"an idle process: an overrun of %d, %+v go back, %d are kept", overrun, backlog, newer.balance)
}
