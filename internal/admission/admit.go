package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Admission is what an admitted call holds while it is open. It is settled once.
type Admission struct {
	Caller Caller
	Call   *Call

	c           *Controller
	reservation *bucket.Reservation
	purse       purse
	// What was last seen of the caller's limits, in the order of Offer.Limits, and when: at
	// the admission, and then by the settle.
	states []bucket.Status
	seen   time.Time

	mu      sync.Mutex
	settled bool
	bill    Bill
}

// ID names the call: 11 characters of base64url.
func (a *Admission) ID() string { return a.reservation.ID() }

// Start is when the call was admitted, by the controller's clock.
func (a *Admission) Start() time.Time { return a.reservation.Start() }

// Left are the caller's limits as they are now, as far as this call knows, in the order of
// Offer.Limits. Until the settle its worst case is taken of them. It must not be called
// while Settle is.
func (a *Admission) Left() []limits.Seen {
	now := a.c.Now()
	left := make([]limits.Seen, len(a.states))
	for i, s := range a.states {
		left[i] = a.Caller.sees(a.Call.Offer.Limits[i], s.After(now.Sub(a.seen)), now)
	}
	return left
}

// Admit asks the fuse, the pools and the caller's limits for the worst case of a call.
// Whatever was taken when one of them refuses has been given back, as far as the store
// answers. All of it takes 4 s at most: see Allowance.
//
// Who gets an Admission must Settle it, on every way out.
func (c *Controller) Admit(ctx context.Context, caller Caller, call *Call) (*Admission, *Refusal) {
	a := &Admission{Caller: caller, Call: call, c: c}
	allowed := c.Allowance()
	asking, cancel := allowed.Asking(ctx)
	defer cancel()
	refusal := a.throughFuse(asking)
	if left(ctx) {
		refusal = &Refusal{Kind: CallerLeft}
	}
	if refusal == nil {
		return a, nil
	}
	undoing, cancel := allowed.TakingBack(ctx)
	defer cancel()
	a.undo(undoing)
	return nil, refusal
}

// left reports whether nobody waits for the answer any more: only the caller cancels a
// request.
func left(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// take takes the worst case from the pools and from the caller's limits. With a refusal
// the admission holds what it got until then.
func (a *Admission) take(ctx context.Context) (refusal *Refusal) {
	if left(ctx) {
		return &Refusal{Kind: CallerLeft}
	}
	prepared, err := a.c.Buckets.Prepare(a.request())
	if err != nil {
		return a.c.storeDown(ctx, err)
	}
	d := prepared.Forecast()
	if !d.Refused() { // a flood of denials should draw no money
		if a.purse, refusal = a.c.setAside(ctx, a.Caller, a.Call.Worst.Money); refusal != nil {
			return refusal
		}
		if d, err = prepared.Reserve(ctx); err != nil {
			return a.c.storeDown(ctx, err)
		}
	}
	a.reservation, a.states, a.seen = d.Reservation, d.Limits, a.c.Now()
	switch {
	case d.Challenged:
		return &Refusal{Kind: ChallengeDue}
	case d.Reservation == nil:
		r := a.Call.denied(d)
		r.Left = a.Left()
		if !a.Caller.Ends.IsZero() { // the next pass has limits of its own
			r.Wait = max(0, min(r.Wait, a.Caller.Ends.Sub(a.seen)))
		}
		return r
	}
	return nil
}

func (c *Controller) storeDown(ctx context.Context, err error) *Refusal {
	c.Log(ctx).Error("reserve failed", "error", err)
	return &Refusal{Kind: StoreDown}
}

// request is what a call asks of its caller's buckets.
func (a *Admission) request() bucket.Request {
	caller, call := a.Caller, a.Call
	req := bucket.Request{
		Key:         caller.Key(),
		Charges:     call.Offer.charges(call.Worst, a.c.softShare(caller, call)),
		MaxInFlight: caller.Tier.MaxInFlight,
		Deadline:    a.c.Now().Add(time.Until(call.End) + SettleMargin), // buckets go by the controller's clock
		Note:        note{feature: call.Offer.Feature.Name, input: call.Input, cost: call.Worst.Money}.encode(),
	}
	if caller.Kind == limits.Network {
		req.Client = bucket.Client{Key: caller.Client, MaxInFlight: req.MaxInFlight}
		req.MaxInFlight = bucket.MaxInFlight
		if n := caller.Tier.Network; n != nil {
			req.MaxInFlight = n.MaxInFlight
		}
	}
	return req
}

// denied is the refusal of a call by its caller's limits.
func (c *Call) denied(d bucket.Decision) *Refusal {
	r := Denied(c.Offer.Limits, d.Denials...)
	if r.Kind == OverLimit {
		r.Affordable = c.affordable(d)
	}
	return r
}

// undo gives back what an admission took for a call that will not be made: all of it at
// once, so that what hangs takes no time from the rest.
func (a *Admission) undo(ctx context.Context) {
	var all sync.WaitGroup
	if a.reservation != nil {
		all.Go(func() {
			if err := a.reservation.Cancel(ctx); err != nil {
				a.c.Log(ctx).Error("cancel failed: the hold expires by itself", "reservation", a.ID(), "error", err)
			}
		})
	}
	for i := range a.purse {
		all.Go(func() { a.c.settlePurse(ctx, a.purse[i:i+1], 0) })
	}
	all.Wait()
}
