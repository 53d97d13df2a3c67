package admission

import (
	"context"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

const (
	// SettleTime is what a settle needs at most: the spend event, then the limits, then
	// the pools.
	SettleTime = 4 * time.Second
	// SettleMargin lies between the end of a call and the end of its invocation: time to
	// settle, and a second for the rest.
	SettleMargin = SettleTime + time.Second
)

// Settle ends the admission by what became of its call. Whoever comes again gets the
// same bill. ctx bounds it and should not be the request's own: a settle outlives that.
//
// The spend event comes before the hold is removed, so that a crash between them leaves
// a hold that tells of the call; the pools' money, which is refilled in time if it is
// lost, comes last.
func (a *Admission) Settle(ctx context.Context, t Tally) Bill {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.settled {
		a.settled = true
		a.bill = a.settle(ctx, t)
	}
	return a.bill
}

func (a *Admission) settle(ctx context.Context, t Tally) Bill {
	b := reckon(t, t.Model.Prices, a.Call.MaxOutput)
	log := a.c.Log(ctx)
	a.doubt(ctx, t, b)
	defer a.c.settlePurse(ctx, a.purse, b.Cost)
	if t.Ending != Unbilled {
		if err := a.c.record(ctx, a.event(t, b)); err != nil {
			// Nothing may be missing from the trailing sum: the hold stays, and who
			// sweeps it records the call as abandoned, at its worst case.
			log.Error("recording a spend event failed: the hold expires by itself", "reservation", a.ID(), "error", err)
			return b
		}
	}
	if err := a.reservation.Settle(ctx, a.Call.Offer.used(b.Caller)); err != nil {
		log.Error("settle failed: the hold expires by itself", "reservation", a.ID(), "error", err)
		return b
	}
	b.Settled = true
	if left := a.reservation.Left(); left != nil {
		a.states, a.seen = left, a.c.Now()
	}
	return b
}

var outcomes = map[Ending]ledger.Outcome{
	Unbilled: "", // is not recorded
	Broken:   ledger.Failed, Completed: ledger.Completed, Left: ledger.Left,
}

// event is what the ledger is told of the call.
func (a *Admission) event(t Tally, b Bill) ledger.Event {
	return ledger.Event{
		Reservation: a.ID(), Time: a.Start(), Identity: a.Caller.Key(), Tier: a.Caller.Tier.Name,
		Feature: a.Call.Offer.Feature.Name, Model: t.Model.Name,
		Usage: b.Usage, Cost: b.Cost, Outcome: outcomes[t.Ending], Estimated: b.Estimated, ProviderRequest: t.RequestID,
	}
}

func (c *Controller) record(ctx context.Context, e ledger.Event) error {
	c.Log(ctx).Info("spend", "event", e)
	switch {
	case c.Ledger == nil:
		return nil
	case e.Outcome == ledger.Abandoned:
		return c.Ledger.RecordAbandoned(ctx, e)
	}
	return c.Ledger.Record(ctx, e)
}

// doubt logs what the owner should know of a provider whose word was not as it should
// be: money is counted by it.
func (a *Admission) doubt(ctx context.Context, t Tally, b Bill) {
	log := func(level slog.Level, msg string, attrs ...any) {
		a.c.Log(ctx).With("feature", a.Call.Offer.Feature.Name, "model", t.Model.Name).Log(ctx, level, msg, attrs...)
	}
	worst := a.Call.Worst
	// How far off the count of the input was, where it was too low: tools and images are
	// shown to models in forms that only their makers know.
	var off []any
	if t.Usage != nil && t.Usage.Input > t.Input {
		off = []any{"reported_input_tokens", t.Usage.Input, "counted_input_tokens", t.Input,
			"tools", len(a.Call.Tools), "counted_tools_tokens", a.Call.OfTools, "images", a.Call.Images()}
	}
	switch {
	case t.Usage == nil && t.Ending == Completed && !t.Overran:
		log(slog.LevelError, "the provider reported no usage that can be true: the worst case is charged")
	case t.Usage != nil && (t.Usage.Total() > worst.Tokens || b.Cost > worst.Money):
		log(slog.LevelWarn, "the provider reported more than was reserved: it is charged as debt",
			append(off, "reported_tokens", t.Usage.Total(), "reserved_tokens", worst.Tokens, "usd", b.Cost.String(), "reserved_usd", worst.Money.String())...)
	case t.Usage != nil && t.Made > t.Usage.Output:
		log(slog.LevelWarn, "the provider reported less output than it sent: what was seen is charged",
			"reported_tokens", t.Usage.Output, "seen_tokens", t.Made)
	case off != nil && len(a.Call.Tools)+a.Call.Images() > 0:
		log(slog.LevelWarn, "the provider reported more input than was counted: it is charged", off...)
	}
}

// Abandoned tells of a call whose process died, at the worst that it can have
// cost. It is what bucket.Options.OnAbandoned wants.
func (c *Controller) Abandoned(ctx context.Context, a bucket.Abandoned) error {
	n, err := decodeNote(a.Note, c.Policy.Features)
	if err != nil {
		return err
	}
	e := ledger.Event{
		Reservation: a.ID, Time: a.Start, Identity: a.Key, Feature: n.feature,
		Usage: price.Usage{Input: n.input}, Cost: n.cost, Outcome: ledger.Abandoned, Estimated: true,
	}
	if f := c.Policy.Features[n.feature]; f != nil {
		e.Model = f.Model.Name
	}
	return c.record(ctx, e)
}
