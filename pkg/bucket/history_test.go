package bucket

import (
	"math/rand/v2"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// history is a random run of calls against one limit, by the pure rule: calls overlap
// and end in any order, some lose the reply to their reserve, some die and are swept,
// the limit is cleared now and then.
type history struct {
	random *rand.Rand
	now    micros
	tat    micros

	credits, cleared micros
	clears           int
	open             []*call
	used             []use // since the last clear, by the time of the reserve
}

// call is an open call, with what its receipt knows.
type call struct {
	start, at           micros // when it was asked for and when it was charged
	cost                int64
	inc                 micros
	after, below, given micros // given: the credits until then
	known               bool   // the reserve was answered
	clears              int    // until the reserve
	cleared             micros // when the last of them was
	use                 int    // its place in history.used; -1: it was cleared
}

const (
	modelCapacity = 1000
	modelPeriod   = micros(1_000_000_000) // a whole number of µs for each unit
)

// rule is how much of an unused increment a settle gives back.
type rule func(h *history, c *call, unused micros) micros

// theRule is the one that Settle and sweeps follow.
func theRule(h *history, c *call, unused micros) micros {
	switch {
	case h.clears != c.clears, !c.known && h.justCleared(c):
		return 0
	case !c.known:
		return refundByAge(unused, c.inc, c.start, h.now)
	}
	return refund(unused, c.after, c.below, h.credits-c.given, h.now)
}

// justCleared reports whether the last clear cannot be told from one after the reserve
// by the start alone.
func (h *history) justCleared(c *call) bool {
	return h.cleared != 0 && c.start <= h.cleared+clearMargin
}

// randomTime is at least 0 and below n.
func randomTime(r *rand.Rand, n micros) micros { return micros(r.Int64N(int64(n))) }

// judgement is what a history found against a rule.
type judgement struct {
	excess int64  // units that some window saw beyond capacity + rate x window
	unfair micros // that some call lost beyond what was refilled while it was open
	greedy micros // that some call was given beyond what it did not use
}

// playHistory plays a history under a rule.
func playHistory(random *rand.Rand, give rule) judgement {
	h := &history{random: random, now: 1_800_000_000_000_000}
	var j judgement
	settle := func(i int) {
		c := h.open[i]
		h.open[i] = h.open[len(h.open)-1]
		h.open = h.open[:len(h.open)-1]
		amount := []int64{0, 0, c.cost, random.Int64N(c.cost + 1)}[random.IntN(4)]
		if c.use >= 0 {
			h.used[c.use].amount = amount
		}
		unused := c.inc - micros(amount)*(modelPeriod/modelCapacity)
		back := give(h, c, unused)
		h.tat -= back
		h.credits += back
		j.greedy = max(j.greedy, back-unused)
		if h.clears != c.clears || !c.known && h.justCleared(c) {
			return // what it was charged has gone with the clear, or may have
		}
		since := c.at
		if !c.known {
			since = c.start
		}
		j.unfair = max(j.unfair, min(unused, c.inc-(h.now-since))-back)
	}
	for range 4 + random.IntN(40) {
		switch n := random.IntN(100); {
		case n < 45:
			h.reserve()
		case n < 75:
			if len(h.open) > 0 {
				settle(random.IntN(len(h.open)))
			}
		case n < 97:
			h.now += randomTime(random, []micros{modelPeriod / 1000, modelPeriod / 20, modelPeriod / 2}[random.IntN(3)])
		case h.tat != 0:
			j.excess = max(j.excess, h.excess())
			h.tat, h.cleared = 0, max(h.now, h.cleared+1)
			h.clears++
			h.used = h.used[:0]
			for _, c := range h.open {
				c.use = -1
			}
		}
	}
	for len(h.open) > 0 {
		settle(random.IntN(len(h.open)))
	}
	j.excess = max(j.excess, h.excess())
	return j
}

func (h *history) reserve() {
	r := h.random
	cost := 1 + r.Int64N([]int64{10, modelCapacity / 3, modelCapacity}[r.IntN(3)])
	inc := micros(cost) * (modelPeriod / modelCapacity)
	if !fits(h.tat, h.now, inc, modelPeriod) {
		return
	}
	base := max(h.tat, h.now)
	if r.IntN(8) == 0 { // others were in its way
		if f := contendedForm(h.tat, h.now, inc, modelPeriod); !f.running {
			base = f.base
		}
	}
	h.tat = base + inc
	c := &call{
		at: h.now, start: h.now, cost: cost, inc: inc, known: r.IntN(5) > 0,
		after: h.tat, below: beneath(h.tat, inc, h.now), given: h.credits,
		clears: h.clears, cleared: h.cleared, use: len(h.used),
	}
	if !c.known {
		c.start -= randomTime(r, 3*second) // it was sent more than once
	}
	h.open = append(h.open, c)
	h.used = append(h.used, use{c.at, cost})
}

// excess is excess for uses in the order of their times, in one go: what is above the
// refill since then, over any window that ends with a use.
func (h *history) excess() (worst int64) {
	var level int64 // units x period
	var last micros
	for _, u := range h.used {
		level = max(0, level-int64(u.at-last)*modelCapacity) + u.amount*int64(modelPeriod)
		last = u.at
		worst = max(worst, level-int64(modelCapacity*modelPeriod+tolerance*modelCapacity))
	}
	return (worst + int64(modelPeriod) - 1) / int64(modelPeriod)
}

// Whatever the order in which calls end, no window sees more use than capacity + rate x
// window, and no call loses more than what was refilled while it was open: neither
// leniency nor caution pays for the other.
func TestRefundIsSafeAndFair(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300_000) {
		j := playHistory(rand.New(rand.NewPCG(seed, 1)), theRule)
		check.Must(t, j.excess <= 0 && j.unfair <= 0 && j.greedy <= 0, "seed %d: %+v", seed, j)
	}
}

// Rules that look right but are not: each is caught, by the test that is for it.
func TestWrongRefundsAreCaught(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                string
		rule                rule
		overAdmits, robbing bool
	}{
		{"all that is unused", func(_ *history, _ *call, unused micros) micros { return unused }, true, false},
		{"others' refunds are ignored", func(h *history, c *call, unused micros) micros {
			if !c.known || h.clears != c.clears {
				return theRule(h, c, unused)
			}
			return refund(unused, c.after, c.below, 0, h.now)
		}, true, false},
		{"all of others' refunds are counted", func(h *history, c *call, unused micros) micros {
			if !c.known || h.clears != c.clears {
				return theRule(h, c, unused)
			}
			return min(unused, max(0, c.after-(h.credits-c.given)-h.now))
		}, false, true},
		{"without the test of clears", func(h *history, c *call, unused micros) micros {
			if !c.known {
				return theRule(h, c, unused)
			}
			return refund(unused, c.after, c.below, h.credits-c.given, h.now)
		}, true, false},
		{"without the test of clears, the TAT unknown", func(h *history, c *call, unused micros) micros {
			if c.known {
				return theRule(h, c, unused)
			}
			return refundByAge(unused, c.inc, c.start, h.now)
		}, true, false},
		{"age counts against what was unused, not against all", func(h *history, c *call, unused micros) micros {
			if h.clears != c.clears || !c.known && h.justCleared(c) {
				return 0
			}
			return max(0, unused-(h.now-c.start))
		}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var over, robbed, played int
			for played < 300_000 && (played < 10_000 || (over > 0) != tc.overAdmits || (robbed > 0) != tc.robbing) {
				j := playHistory(rand.New(rand.NewPCG(uint64(played), 2)), tc.rule)
				if j.excess > 0 {
					over++
				}
				if j.unfair > 0 {
					robbed++
				}
				played++
			}
			if (over > 0) != tc.overAdmits || (robbed > 0) != tc.robbing {
				t.Errorf("of %d histories %d over-admitted and %d took too much; want some: %t, %t", played, over, robbed, tc.overAdmits, tc.robbing)
			} else {
				t.Logf("of %d histories %d over-admitted and %d took too much", played, over, robbed)
			}
		})
	}
}
