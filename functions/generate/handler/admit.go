package handler

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// inFlightRetry is the wait that is advised when too many calls are open: nobody
// knows when one ends.
const inFlightRetry = 2 * time.Second

// worstCase is the most that a request can use.
func (o *offer) worstCase(c *capped) amount {
	worst := amount{tokens: c.input + c.maxOutput, results: 1}
	for _, candidate := range o.candidates {
		worst.money = max(worst.money, candidate.model.Prices.WorstCase(c.input, c.maxOutput))
	}
	return worst
}

// admission is what a call holds while it is open.
type admission struct {
	bucket.Decision
	purse purse
}

// admit asks the fuse, the pools and the caller's limits for the worst case of a
// call. Without an error the decision is an admission; of a denial it is returned
// too, for the headers. Whatever was taken when something refuses goes back. All of it
// takes 4 s at most: see allowance.
func (h *Handler) admit(r *http.Request, c *call, deadline time.Time) (a admission, apiErr *openai.Error) {
	ctx := r.Context()
	if setting, fresh := h.Fuse.Fresh(); fresh {
		if apiErr = h.obey(r, c.identity, setting, nil); apiErr != nil {
			return a, apiErr
		}
	}
	allowed := h.allowance()
	fuse := sync.OnceValues(h.Fuse.Begin(ctx)) // beside the reserve, if it must be read
	defer fuse()                               // on every way out, or it would be under way when Lambda freezes us
	asking, cancel := allowed.asking(ctx)
	defer cancel()
	req := h.reserveRequest(r, c, deadline)

	// A flood of denials should draw no money.
	var d bucket.Decision
	prepared, err := h.Buckets.Prepare(req)
	if err == nil {
		d = prepared.Forecast()
	}
	if err == nil && !d.Refused() {
		if a.purse, apiErr = h.setAside(asking, c.identity.tier, c.worst.money); apiErr == nil {
			d, err = prepared.Reserve(asking)
		}
	}
	a.Decision = d
	setting, fuseErr := fuse()
	blown := h.obey(r, c.identity, setting, fuseErr)
	switch {
	case blown != nil:
		apiErr = blown
	case apiErr != nil: // the pools'
	case err != nil:
		logger(ctx).Error("reserve failed", "error", err)
		apiErr = openai.Unavailable(openai.StoreUnavailable, "The call could not be admitted at the moment. Try again.")
	case d.Challenged:
		apiErr = h.required(r)
	case d.Reservation == nil:
		apiErr = h.denied(r, c, d)
	}
	if apiErr != nil {
		undoing, cancel := allowed.takingBack(ctx)
		defer cancel()
		a.undo(undoing)
	}
	return a, apiErr
}

// undo gives back what an admission took for a call that will not be made: all of it at
// once, so that what hangs takes no time from the rest.
func (a admission) undo(ctx context.Context) {
	var all sync.WaitGroup
	if a.Reservation != nil {
		all.Go(func() {
			if err := a.Reservation.Cancel(ctx); err != nil {
				logger(ctx).Error("cancel failed: the hold expires by itself", "reservation", a.Reservation.ID(), "error", err)
			}
		})
	}
	for i := range a.purse {
		all.Go(func() { a.purse[i:i+1].settle(ctx, 0) })
	}
	all.Wait()
}

// reserveRequest is what a call asks of its identity's buckets.
func (h *Handler) reserveRequest(r *http.Request, c *call, deadline time.Time) bucket.Request {
	req := bucket.Request{
		Key:         c.identity.key(),
		Charges:     c.offer.charges(c.worst, h.softShare(r, c.identity, c.offer, c.capped)),
		MaxInFlight: c.identity.tier.MaxInFlight,
		Deadline:    deadline,
		Note:        note{feature: c.offer.feature.Name, input: c.input, cost: c.worst.money}.encode(),
	}
	if c.identity.kind == limits.Network {
		req.Client = bucket.Client{Key: c.identity.client, MaxInFlight: req.MaxInFlight}
		req.MaxInFlight = maxNetworkCalls
		if n := c.identity.tier.Network; n != nil {
			req.MaxInFlight = n.MaxInFlight
		}
	}
	return req
}

// denied makes an error of a denial. Of several limits the one with the longest
// wait is named: coming back sooner would be of no use.
func (h *Handler) denied(r *http.Request, c *call, d bucket.Decision) *openai.Error {
	o := c.offer
	longest, wait := d.Denials[0], retryAfter(d.Denials[0])
	for _, other := range d.Denials[1:] {
		if w := retryAfter(other); w > wait {
			longest, wait = other, w
		}
	}
	e := &openai.Error{Code: openai.RateLimitExceeded, RetryAfter: wait, Denied: &openai.Denied{
		Limit: longest.Limit.Name, Unit: string(policy.Requests), Requested: longest.Requested, Remaining: longest.Remaining,
	}}
	again := "You can ask again in " + inWords(wait) + "."
	if longest.Limit.Name == bucket.InFlight {
		e.Message = fmt.Sprintf("Too many calls at a time: at most %d may be open. %s", longest.Limit.Capacity, again)
		return e
	}
	l := o.limit(longest.Limit.Name)
	if l.PassCalls {
		e := h.required(r)
		e.Message = "Your pass is used up. " + e.Message
		return e
	}
	e.Denied.Unit, e.Denied.Requested, e.Denied.Remaining = string(l.Unit), l.Asked(longest.Requested), l.Shown(longest.Remaining)
	e.Denied.Affordable = affordable(o, c.capped, d)
	period := "in " + inWords(l.Period)
	switch {
	case l.Quota:
		e.Code = openai.InsufficientQuota
		e.Message = fmt.Sprintf("Your quota for %s is used up: %d %s. %s", o.feature.Name, l.Capacity, period, again)
	case l.Unit == policy.USDMicros:
		e.Code = openai.InsufficientQuota
		e.Message = fmt.Sprintf("Your spending limit is reached: $%s %s. %s", price.Pico(l.Capacity), period, again)
	case l.Unit == policy.Tokens:
		e.Message = fmt.Sprintf("This call may need %d tokens and %d of %d are left. %s", longest.Requested, longest.Remaining, l.Capacity, again)
		if e.Denied.Affordable != nil {
			e.Message += fmt.Sprintf(" An answer of at most %d tokens would fit now.", *e.Denied.Affordable)
		}
	default:
		e.Message = fmt.Sprintf("Too many requests: %d are allowed %s. %s", l.Capacity, period, again)
	}
	return e
}

func retryAfter(d bucket.Denial) time.Duration {
	if d.Limit.Name == bucket.InFlight {
		return inFlightRetry
	}
	return d.RetryAfter
}

func (o *offer) limit(name string) limits.Limit {
	for _, l := range o.limits {
		if l.Name == name {
			return l
		}
	}
	return limits.Limit{} // no limit but ours can deny
}

// affordable is the largest max_tokens with which the same request would be
// admitted now, or nil if there is none.
func affordable(o *offer, c *capped, d bucket.Decision) *int64 {
	for _, denial := range d.Denials {
		if denial.Limit.Name == bucket.InFlight {
			return nil
		}
		if l := o.limit(denial.Limit.Name); l.Quota || l.PassCalls || l.Unit == policy.Requests {
			return nil
		}
	}
	most := c.maxOutput
	for i, s := range d.Limits {
		switch l := o.limits[i]; {
		case l.Quota, l.PassCalls:
		case l.Unit == policy.Tokens:
			most = min(most, s.Remaining-c.input)
		case l.Unit == policy.USDMicros && s.Remaining < l.Least():
			return nil // a free call costs the least amount, too
		case l.Unit == policy.USDMicros:
			for _, candidate := range o.candidates {
				most = min(most, candidate.model.Prices.AffordableOutput(c.input, price.Pico(s.Remaining)))
			}
		}
	}
	if most < 1 {
		return nil
	}
	return &most
}
