package handler

import (
	"context"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// ending is how a provider call ended, as far as charging is concerned.
type ending uint8

const (
	broken    ending = iota // the provider or we failed on the way; also what a panic leaves
	unbilled                // never sent, or refused by the provider: nothing was billed
	completed               // the answer came to its end
	left                    // the caller left or stalled
)

// tally is what is known of a call when it ends.
type tally struct {
	ending    ending
	finished  bool         // a finish_reason arrived
	usage     *price.Usage // what the provider reported; nil: nothing
	delivered bool         // some content reached the caller
	// What we counted ourselves: the input, and the output that was seen.
	input, output int64
}

// bill is what a call comes to, for each of those who keep count.
type bill struct {
	caller amount // for the caller's limits
	// For the ledger: what the provider billed, or the worst that it may have.
	usage     price.Usage
	cost      price.Pico
	estimated bool
}

// reckon applies the rules of settling:
//
//   - Tokens and money follow what the provider billed. If its report is missing
//     because it or we failed, the caller pays for what was seen and the ledger
//     assumes the worst; if because the caller left, both assume the worst, or
//     leaving early would be free.
//   - A quota is used by an answer that was finished, or that the caller left
//     after some of it.
//   - Requests count whatever happens; that is up to the limit itself.
func reckon(t tally, prices price.Table, maxOutput int64) bill {
	var b bill
	if t.finished || t.ending == left && t.delivered {
		b.caller.results = 1
	}
	switch {
	case t.usage != nil:
		b.usage = *t.usage
		b.cost = prices.Cost(b.usage)
		b.caller.tokens, b.caller.money = b.usage.Total(), b.cost
		return b
	case t.ending == unbilled:
		return b
	}
	b.estimated = true
	b.usage = price.Usage{Input: t.input, Output: max(maxOutput, t.output)} // the cap may have been ignored
	b.cost = prices.WorstCase(b.usage.Input, b.usage.Output)
	if t.ending == left {
		b.caller.tokens, b.caller.money = b.usage.Total(), b.cost
		return b
	}
	if t.output > 0 || t.finished {
		b.caller.tokens = t.input + t.output
		b.caller.money = prices.Cost(price.Usage{Input: t.input, Output: t.output})
	}
	return b
}

// settleTime bounds a settle: the spend event, then the bucket.
const settleTime = 4 * time.Second

// settle ends an admission by what became of its call. It outlives the request's
// own context. The spend event comes before the hold is removed, so that a crash
// between them leaves a hold that tells of the call; the pools' money, which is
// refilled in time if it is lost, comes last.
func (h *Handler) settle(ctx context.Context, a admission, c *call, m *policy.Model, t tally) bill {
	ctx, cancel := detached(ctx, settleTime)
	defer cancel()
	r := a.Reservation
	b := reckon(t, m.Prices, c.maxOutput)
	if t.ending != unbilled {
		e := ledger.Event{
			Reservation: r.ID(), Time: r.Start(), Identity: c.identity.key(), Tier: c.identity.tier.Name,
			Feature: c.offer.feature.Name, Model: m.Name,
			Usage: b.usage, Cost: b.cost, Outcome: outcomes[t.ending], Estimated: b.estimated,
		}
		logger(ctx).Info("spend", "event", e)
		if h.Ledger != nil {
			if err := h.Ledger.Record(ctx, e); err != nil {
				// Nothing may be missing from the trailing sum: the hold stays, and who
				// sweeps it records the call as abandoned, at its worst case.
				logger(ctx).Error("recording a spend event failed: the hold expires by itself", "reservation", r.ID(), "error", err)
				a.purse.settle(ctx, b.cost)
				return b
			}
		}
	}
	if err := r.Settle(ctx, c.offer.used(b.caller)); err != nil {
		logger(ctx).Error("settle failed: the hold expires by itself", "reservation", r.ID(), "error", err)
	}
	a.purse.settle(ctx, b.cost)
	h.learn(ctx, c.identity)
	return b
}

var outcomes = map[ending]ledger.Outcome{
	broken: ledger.Failed, completed: ledger.Completed, left: ledger.Left,
}

// Abandoned tells of a call whose process died, at the worst that it can have
// cost. It is what bucket.Options.OnAbandoned wants.
func (h *Handler) Abandoned(ctx context.Context, a bucket.Abandoned) error {
	n, err := decodeNote(a.Note, h.Policy.Features)
	if err != nil {
		return err
	}
	e := ledger.Event{
		Reservation: a.ID, Time: a.Start, Identity: a.Key, Feature: n.feature,
		Usage: price.Usage{Input: n.input}, Cost: n.cost, Outcome: ledger.Abandoned, Estimated: true,
	}
	if f := h.Policy.Features[n.feature]; f != nil {
		e.Model = f.Model.Name
	}
	logger(ctx).Info("spend", "event", e)
	if h.Ledger == nil {
		return nil
	}
	return h.Ledger.RecordAbandoned(ctx, e)
}
