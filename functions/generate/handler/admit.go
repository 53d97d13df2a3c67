package handler

import (
	"context"
	"fmt"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// inFlightRetry is the wait that is advised when too many calls are open: nobody
// knows when one ends.
const inFlightRetry = 2 * time.Second

// worstCase is the most that a request can use.
func (o *offer) worstCase(c *capped) amount {
	return amount{
		tokens:  c.input + c.maxOutput,
		money:   o.model.Prices.WorstCase(c.input, c.maxOutput),
		results: 1,
	}
}

// reserve asks for the worst case of a request. Without an error, the decision
// is an admission; of a denial it is returned too, for the headers.
func (h *Handler) reserve(ctx context.Context, id identity, o *offer, c *capped, worst amount, deadline time.Time) (bucket.Decision, *apiError) {
	d, err := h.Buckets.Reserve(ctx, bucket.Request{
		Key:         id.key(),
		Charges:     o.charges(worst),
		MaxInFlight: id.tier.MaxInFlight,
		Deadline:    deadline,
		Note:        note{feature: o.feature.Name, input: c.input, cost: worst.money}.encode(),
	})
	if err != nil {
		logger(ctx).Error("reserve failed", "error", err)
		return d, unavailable(storeUnavailable, "The call could not be admitted at the moment. Try again.")
	}
	if d.Reservation == nil {
		return d, denied(o, c, d)
	}
	return d, nil
}

// denied makes an error of a denial. Of several limits the one with the longest
// wait is named: coming back sooner would be of no use.
func denied(o *offer, c *capped, d bucket.Decision) *apiError {
	longest, wait := d.Denials[0], retryAfter(d.Denials[0])
	for _, other := range d.Denials[1:] {
		if w := retryAfter(other); w > wait {
			longest, wait = other, w
		}
	}
	e := &apiError{code: rateLimitExceeded, retryAfter: wait, limit: &limitError{
		Limit: longest.Limit.Name, Unit: string(policy.Requests),
		RetryAfter: ceilSeconds(wait), Requested: longest.Requested, Remaining: longest.Remaining,
	}}
	again := "You can ask again in " + inWords(wait) + "."
	if longest.Limit.Name == bucket.InFlight {
		e.message = fmt.Sprintf("Too many calls at a time: at most %d may be open. %s", longest.Limit.Capacity, again)
		return e
	}
	l := o.limit(longest.Limit.Name)
	e.limit.Unit = string(l.unit)
	e.limit.Affordable = affordable(o, c, d)
	period := "in " + inWords(l.Period)
	switch {
	case l.quota:
		e.code = insufficientQuota
		e.message = fmt.Sprintf("Your quota for %s is used up: %d %s. %s", o.feature.Name, l.Capacity, period, again)
	case l.unit == policy.USDMicros:
		e.code = insufficientQuota
		e.message = fmt.Sprintf("Your spending limit is reached: $%s %s. %s", price.Pico(l.Capacity)*price.Dollar/1_000_000, period, again)
	case l.unit == policy.Tokens:
		e.message = fmt.Sprintf("This call may need %d tokens and %d of %d are left. %s", longest.Requested, longest.Remaining, l.Capacity, again)
		if e.limit.Affordable != nil {
			e.message += fmt.Sprintf(" An answer of at most %d tokens would fit now.", *e.limit.Affordable)
		}
	default:
		e.message = fmt.Sprintf("Too many requests: %d are allowed %s. %s", l.Capacity, period, again)
	}
	return e
}

func retryAfter(d bucket.Denial) time.Duration {
	if d.Limit.Name == bucket.InFlight {
		return inFlightRetry
	}
	return d.RetryAfter
}

func (o *offer) limit(name string) limit {
	for _, l := range o.limits {
		if l.Name == name {
			return l
		}
	}
	return limit{} // no limit but ours can deny
}

// affordable is the largest max_tokens with which the same request would be
// admitted now, or nil if there is none.
func affordable(o *offer, c *capped, d bucket.Decision) *int64 {
	for _, denial := range d.Denials {
		if denial.Limit.Name == bucket.InFlight {
			return nil
		}
		if l := o.limit(denial.Limit.Name); l.quota || l.unit == policy.Requests {
			return nil
		}
	}
	most := c.maxOutput
	for i, s := range d.Limits {
		switch l := o.limits[i]; {
		case l.quota:
		case l.unit == policy.Tokens:
			most = min(most, s.Remaining-c.input)
		case l.unit == policy.USDMicros && s.Remaining == 0:
			return nil // a free call costs the least amount, too
		case l.unit == policy.USDMicros:
			most = min(most, o.model.Prices.AffordableOutput(c.input, price.Pico(s.Remaining)*price.Dollar/1_000_000))
		}
	}
	if most < 1 {
		return nil
	}
	return &most
}
