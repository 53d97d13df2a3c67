package handler

import (
	"context"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

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
	doubt(ctx, c, m, t, b)
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
	} else {
		b.settled = true
	}
	a.purse.settle(ctx, b.cost)
	h.learn(ctx, c.identity)
	return b
}

// doubt logs what the owner should know of a provider whose word was not as it should
// be: money is counted by it.
func doubt(ctx context.Context, c *call, m *policy.Model, t tally, b bill) {
	log := func(level slog.Level, msg string, attrs ...any) {
		logger(ctx).With("feature", c.offer.feature.Name, "model", m.Name).Log(ctx, level, msg, attrs...)
	}
	switch {
	case t.usage == nil && t.ending == completed && !t.overran:
		log(slog.LevelError, "the provider reported no usage that can be true: the worst case is charged")
	case t.usage != nil && (t.usage.Total() > c.worst.tokens || b.cost > c.worst.money):
		log(slog.LevelWarn, "the provider reported more than was reserved: it is charged as debt",
			"reported_tokens", t.usage.Total(), "reserved_tokens", c.worst.tokens, "usd", b.cost.String(), "reserved_usd", c.worst.money.String())
	case t.usage != nil && t.made > t.usage.Output:
		log(slog.LevelWarn, "the provider reported less output than it sent: what was seen is charged",
			"reported_tokens", t.usage.Output, "seen_tokens", t.made)
	}
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
