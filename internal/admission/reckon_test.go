package admission

import (
	"fmt"
	"math"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Every way in which a call can end, and what each of those who keep count then
// takes down.
func TestReckon(t *testing.T) {
	t.Parallel()
	prices := price.Table{Rates: price.Rates{Input: 4, CachedInput: 1, CacheWrite: 5, Output: 16}}
	const maxOutput = 200
	type charge struct {
		tokens int64
		money  price.Pico
	}
	var (
		nothing  = charge{}
		reported = charge{180, 60*4 + 50*1 + 70*16}
		topped   = charge{110 + 90, 60*4 + 50*1 + 90*16} // the report, with the output that was seen
		seen     = charge{130, 0}
		input    = charge{100, 0}              // seen, when there was no text
		worst    = charge{300, 100*5 + 200*16} // every token of the input at the dearest rate
		beyond   = charge{600, 100*5 + 500*16} // what was seen, where that is more
	)
	usage := &price.Usage{Input: 110, CachedInput: 50, Output: 70, Reasoning: 20}

	// Of each table the first row that matches is the rule.
	const no, yes, either = 0, 1, 2
	const any = Ending(255)
	is := func(rule int, b bool) bool { return rule == either || (rule == yes) == b }
	quotas := []struct {
		ending                    Ending
		finished, text, delivered int
		want                      int64
	}{
		{any, yes, yes, yes, 1},
		{Left, no, yes, yes, 1},      // after some of it
		{Completed, yes, yes, no, 1}, // in one piece: it is sent after the settle
		{Left, yes, yes, no, 1},      // it was there to be taken
		{any, either, either, either, 0},
	}
	tokens := []struct {
		ending                Ending
		usage, finished, text int
		caller, ledger        charge // of the ledger money too
	}{
		{any, yes, either, either, reported, reported},
		{Unbilled, no, either, either, nothing, nothing},
		{Left, no, either, either, worst, worst},
		{any, no, either, yes, seen, worst},
		{any, no, yes, no, input, worst},
		{any, no, no, no, nothing, worst},
	}

	combinations := 0
	for _, e := range []Ending{Broken, Unbilled, Completed, Left} {
		for bits := range 16 {
			known, finished, text, delivered := bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
			if delivered && !text {
				continue
			}
			combinations++
			tally := Tally{Ending: e, Finished: finished, Text: text, Delivered: delivered, Input: 100}
			if known {
				tally.Usage = usage
			}
			if text {
				tally.Output, tally.Made = 30, 30
			}
			name := fmt.Sprintf("ending %d, usage %t, finished %t, text %t, delivered %t", e, known, finished, text, delivered)
			got := reckon(tally, prices, maxOutput)
			for _, rule := range quotas {
				if (rule.ending == any || rule.ending == e) && is(rule.finished, finished) && is(rule.text, text) && is(rule.delivered, delivered) {
					check.Equal(t, got.Caller.Results, rule.want, "%s: of the quota", name)
					break
				}
			}
			for _, rule := range tokens {
				if (rule.ending == any || rule.ending == e) && is(rule.usage, known) && is(rule.finished, finished) && is(rule.text, text) {
					check.Equal(t, got.Caller.Tokens, rule.caller.tokens, "%s: the caller pays … tokens", name)
					check.Equal(t, (charge{got.Usage.Total(), got.Cost}), rule.ledger, "%s: the ledger has", name)
					check.That(t, got.Caller.Money == got.Cost, "%s: the caller pays %d, the ledger has %d", name, got.Caller.Money, got.Cost)
					want := !known && e != Unbilled
					check.That(t, got.Estimated == want, "%s: estimated %t, want %t", name, got.Estimated, want)
					break
				}
			}
		}
	}
	check.Equal(t, combinations, 48, "combinations")

	for _, tt := range []struct {
		name      string
		tally     Tally
		tokens    int64
		ledger    charge
		estimated bool
	}{
		{"seen beyond the cap, and no report", Tally{Ending: Completed, Finished: true, Output: 500, Made: 500}, 600, beyond, true},
		{"the same, broken", Tally{Ending: Broken, Output: 500, Made: 500}, 600, beyond, true},
		{"the same, and left", Tally{Ending: Left, Output: 500, Made: 500}, 600, beyond, true},
		{"a report of less than was seen", Tally{Ending: Completed, Finished: true, Usage: usage, Output: 90, Made: 90}, 180, topped, true},
		{"the same, broken", Tally{Ending: Broken, Usage: usage, Output: 90, Made: 90}, 180, topped, true},
		{"a report of as much as was seen", Tally{Ending: Completed, Finished: true, Usage: usage, Output: 70, Made: 70}, 180, reported, false},
		{"a report that the answer outran", Tally{Ending: Broken, Output: 30, Made: 30, Least: usage}, 130, charge{310, 110*5 + 200*16}, true},
		{"the same, of more than the cap", Tally{Ending: Completed, Finished: true, Output: 30, Made: 30, Least: &price.Usage{Input: 90, Output: 400}}, 130, charge{500, 100*5 + 400*16}, true},
		{"the same, and left", Tally{Ending: Left, Output: 30, Made: 30, Least: usage}, 300, charge{310, 110*5 + 200*16}, true},
		{"ended at the cap", Tally{Ending: Completed, Finished: true, Overran: true, Output: 240, Made: 245}, 340, charge{345, 100*5 + 245*16}, true},
		{"ended at the cap, in one piece", Tally{Ending: Completed, Finished: true, Overran: true, Output: 200, Made: 800}, 300, charge{900, 100*5 + 800*16}, true},
		{"ended at the cap, with a report of it", Tally{Ending: Completed, Finished: true, Overran: true, Output: 200, Made: 800,
			Usage: &price.Usage{Input: 110, CachedInput: 50, Output: 900}}, 300, charge{1010, 60*4 + 50*1 + 900*16}, false},
		{"ended at the cap, with a report of less", Tally{Ending: Completed, Finished: true, Overran: true, Output: 200, Made: 800, Usage: usage}, 300,
			charge{900, 100*5 + 800*16}, true},
		{"ended at the cap, and left", Tally{Ending: Left, Finished: true, Overran: true, Output: 240, Made: 245}, 340, charge{345, 100*5 + 245*16}, true},
	} {
		tt.tally.Input, tt.tally.Text = 100, true
		got := reckon(tt.tally, prices, maxOutput)
		if c := (charge{got.Usage.Total(), got.Cost}); got.Caller.Tokens != tt.tokens || c != tt.ledger || got.Caller.Money != got.Cost || got.Estimated != tt.estimated {
			t.Errorf("%s: %+v, want %d tokens of the caller and %+v in the ledger, estimated %t", tt.name, got, tt.tokens, tt.ledger, tt.estimated)
		}
	}

	// Whatever a provider says and sends, nothing wraps around.
	for _, n := range []int64{1 << 31, 1e12, 1 << 62, math.MaxInt64} {
		for _, e := range []Ending{Broken, Completed, Left} {
			for _, overran := range []bool{false, true} {
				got := reckon(Tally{Ending: e, Overran: overran, Finished: overran, Text: true, Input: 100, Output: n, Made: n, Usage: &price.Usage{Input: n, Output: n}},
					price.Table{Rates: price.Rates{Input: 1e10, CachedInput: 1e10, CacheWrite: 1e10, Output: 1e10}}, maxOutput)
				check.That(t, got.Caller.Tokens >= n && got.Caller.Money >= price.Pico(n) && got.Cost >= price.Pico(n) && got.Usage.Total() >= n,
					"ending %d, %d tokens: %+v", e, n, got)
			}
		}
	}
}
