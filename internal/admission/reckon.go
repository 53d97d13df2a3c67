package admission

import (
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// Ending is how a provider call ended, as far as charging is concerned.
type Ending uint8

const (
	Broken    Ending = iota // the provider or we failed on the way; also what a panic leaves
	Unbilled                // never sent, or refused in a way that cannot have been billed
	Completed               // the answer came to its end
	Left                    // the caller left or stalled
)

// Tally is what is known of a call when it ends.
type Tally struct {
	Model     *policy.Model // that was asked last
	Ending    Ending
	Finished  bool         // a finish_reason arrived, or we ended the answer at its cap
	Overran   bool         // the provider went on beyond the output cap
	Text      bool         // there is some content or refusal to show: more than blanks
	Delivered bool         // some of it reached the caller
	Usage     *price.Usage // what the provider reported, if a model can have it; nil: nothing
	RequestID string       // what the provider calls the request, a plain word; "": nothing
	Least     *price.Usage // without usage: a report that the answer outran; nil: none
	// What we counted ourselves, in tokens: the input; the output that the caller is
	// held to, which ends at the cap where the provider did not; and what the provider
	// has certainly made, whether it was shown or not.
	Input, Output, Made int64
}

// Bill is what a call comes to, for each of those who keep count.
type Bill struct {
	Caller Amount // for the caller's limits
	// For the ledger and the pools: what the provider billed, or the most that it may
	// have.
	Usage     price.Usage
	Cost      price.Pico
	Estimated bool // Usage and Cost are not what the provider reported
	Settled   bool // the caller's limits are known to have it
}

// reckon applies the rules of settling:
//
//   - A report is what was billed. The caller pays it; the ledger takes the larger of
//     it and what was seen.
//   - Without one the ledger assumes the worst: the reservation, or what was seen or
//     last reported on the way if that is more. The caller pays, in tokens, for what was
//     made and seen; but for the worst after leaving, or to leave early would be free.
//   - An answer that had to be ended at its cap is charged to the caller as far as it
//     goes, and to the ledger at the larger of the worst, what was seen and what was
//     reported.
//   - Dollars follow the ledger, always: they protect who pays the provider.
//   - A quota is used by an answer with some text that was finished, or that the
//     caller left after some of it.
//   - Requests count whatever happens; that is up to the limit itself.
func reckon(t Tally, prices price.Table, maxOutput int64) Bill {
	var b Bill
	given := t.Delivered || t.Text && (t.Ending == Completed || t.Ending == Left)
	if given && t.Finished || t.Delivered && t.Ending == Left {
		b.Caller.Results = 1
	}
	if t.Usage == nil && t.Ending == Unbilled {
		return b
	}
	worst := price.Usage{Input: t.Input, Output: max(maxOutput, t.Made)}
	if t.Least != nil {
		worst.Input, worst.Output = max(worst.Input, t.Least.Input), max(worst.Output, t.Least.Output)
	}
	b.Usage, b.Cost, b.Estimated = worst, prices.WorstCase(worst.Input, worst.Output), true
	if t.Usage != nil {
		reported := *t.Usage
		reported.Output = max(reported.Output, t.Made)
		if cost := prices.Cost(reported); !t.Overran || cost > b.Cost {
			b.Usage, b.Cost, b.Estimated = reported, cost, reported != *t.Usage
		}
	}
	switch {
	case t.Usage != nil && !t.Overran:
		b.Caller.Tokens = t.Usage.Total()
	case t.Ending == Left:
		b.Caller.Tokens = price.Sum(t.Input, max(maxOutput, t.Output))
	case t.Output > 0 || t.Finished:
		b.Caller.Tokens = price.Sum(t.Input, t.Output)
	}
	b.Caller.Money = b.Cost
	return b
}
