package handler

import "github.com/tokenfuse/tokenfuse/internal/price"

// ending is how a provider call ended, as far as charging is concerned.
type ending uint8

const (
	broken    ending = iota // the provider or we failed on the way; also what a panic leaves
	unbilled                // never sent, or refused in a way that cannot have been billed
	completed               // the answer came to its end
	left                    // the caller left or stalled
)

// tally is what is known of a call when it ends.
type tally struct {
	ending    ending
	finished  bool         // a finish_reason arrived, or we ended the answer at its cap
	overran   bool         // the provider went on beyond the output cap
	text      bool         // there is some content or refusal to show
	delivered bool         // some of it reached the caller
	usage     *price.Usage // what the provider reported, if a model can have it; nil: nothing
	least     *price.Usage // without usage: a report that the answer outran; nil: none
	// What we counted ourselves, in tokens: the input; the output that the caller is
	// held to, which ends at the cap where the provider did not; and what the provider
	// has certainly made, whether it was shown or not.
	input, output, made int64
}

// bill is what a call comes to, for each of those who keep count.
type bill struct {
	caller amount // for the caller's limits
	// For the ledger and the pools: what the provider billed, or the most that it may
	// have.
	usage     price.Usage
	cost      price.Pico
	estimated bool // usage and cost are not what the provider reported
	settled   bool // the caller's limits are known to have it
}

// reckon applies the rules of settling:
//
//   - A report is what was billed. The caller pays it; the ledger takes the larger of
//     it and what was seen.
//   - Without one the ledger assumes the worst: the reservation, or what was seen or
//     last reported on the way if that is more. The caller pays, in tokens, for what was made and seen; but the
//     worst after leaving, or to leave early would be free.
//   - An answer that had to be ended at its cap is charged to the caller as far as it
//     goes, and to the ledger at the larger of the worst, what was seen and what was
//     reported.
//   - Dollars follow the ledger, always: they protect who pays the provider.
//   - A quota is used by an answer with some text that was finished, or that the
//     caller left after some of it.
//   - Requests count whatever happens; that is up to the limit itself.
func reckon(t tally, prices price.Table, maxOutput int64) bill {
	var b bill
	given := t.delivered || t.text && (t.ending == completed || t.ending == left)
	if given && t.finished || t.delivered && t.ending == left {
		b.caller.results = 1
	}
	if t.usage == nil && t.ending == unbilled {
		return b
	}
	worst := price.Usage{Input: t.input, Output: max(maxOutput, t.made)}
	if t.least != nil {
		worst.Input, worst.Output = max(worst.Input, t.least.Input), max(worst.Output, t.least.Output)
	}
	b.usage, b.cost, b.estimated = worst, prices.WorstCase(worst.Input, worst.Output), true
	if t.usage != nil {
		reported := *t.usage
		reported.Output = max(reported.Output, t.made)
		if cost := prices.Cost(reported); !t.overran || cost > b.cost {
			b.usage, b.cost, b.estimated = reported, cost, reported != *t.usage
		}
	}
	switch {
	case t.usage != nil && !t.overran:
		b.caller.tokens = t.usage.Total()
	case t.ending == left:
		b.caller.tokens = price.Sum(t.input, max(maxOutput, t.output))
	case t.output > 0 || t.finished:
		b.caller.tokens = price.Sum(t.input, t.output)
	}
	b.caller.money = b.cost
	return b
}
