package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Prepared is a Request that was checked, with everything worked out that the store
// is not needed for. It does not change and may be used any number of times, by any
// number of goroutines: each Reserve is a call of its own.
type Prepared struct {
	b           *Buckets
	key         string
	client      Client
	maxInFlight int
	deadline    micros
	note        []byte
	charges     []charge
}

// charge is a Charge in the terms of the store.
type charge struct {
	Charge
	slot
	bound micros // the period, or the share of it up to which there is no challenge
	inc   micros
}

// Reserve prepares a request and reserves it: see Prepare and Prepared.Reserve.
func (b *Buckets) Reserve(ctx context.Context, req Request) (Decision, error) {
	p, err := b.Prepare(req)
	if err != nil {
		return Decision{}, err
	}
	return p.Reserve(ctx)
}

// Prepare checks a request. The error says what is wrong with it.
func (b *Buckets) Prepare(req Request) (*Prepared, error) {
	switch {
	case req.Key == "" || len(req.Key) > 1024:
		return nil, errors.New("bucket: Request.Key must be 1 to 1024 bytes")
	case len(req.Charges) == 0 || len(req.Charges) > MaxLimits:
		return nil, fmt.Errorf("bucket: Request.Charges must be 1 to %d, and are %d", MaxLimits, len(req.Charges))
	case req.MaxInFlight < 1 || req.MaxInFlight > MaxInFlight:
		return nil, fmt.Errorf("bucket: Request.MaxInFlight is not between 1 and %d", MaxInFlight)
	case len(req.Note) > MaxNote:
		return nil, fmt.Errorf("bucket: Request.Note is longer than %d bytes", MaxNote)
	}
	if err := req.Client.validate(); err != nil {
		return nil, err
	}
	p := &Prepared{
		b: b, key: req.Key, client: req.Client,
		maxInFlight: req.MaxInFlight,
		deadline:    at(req.Deadline),
		note:        slices.Clone(req.Note),
		charges:     make([]charge, len(req.Charges)),
	}
	if err := p.inTime(b.now()); err != nil {
		return nil, err
	}
	for i, c := range req.Charges {
		var err error
		if p.charges[i], err = b.prepareCharge(c, req.Client.Key); err != nil {
			return nil, err
		}
		for _, earlier := range p.charges[:i] {
			if earlier.slot == p.charges[i].slot {
				return nil, fmt.Errorf("bucket: limit %s stands twice", c.Limit.Name)
			}
		}
	}
	return p, nil
}

func (b *Buckets) prepareCharge(c Charge, client string) (charge, error) {
	if err := c.Limit.Validate(); err != nil {
		return charge{}, err
	}
	if kept := c.Limit.kept(); kept > b.opts.LongestPeriod {
		return charge{}, fmt.Errorf("bucket: limit %s: period %s is above Options.LongestPeriod", c.Limit.Name, kept)
	}
	if c.OfClient && client == "" {
		return charge{}, fmt.Errorf("bucket: limit %s is of a client and there is none", c.Limit.Name)
	}
	p := c.Limit.period()
	inc, err := increment(c.Cost, c.Limit.Capacity, p)
	if err != nil {
		return charge{}, fmt.Errorf("%w: limit %s", err, c.Limit.Name)
	}
	bound := p
	if c.Soft > 0 && c.Soft < 1 {
		bound = micros(c.Soft * float64(p))
	}
	return charge{c, c.slot(client), bound, inc}, nil
}

// slot is where the limit of a charge is, given the client that is charged.
func (c Charge) slot(client string) slot {
	if !c.OfClient {
		client = ""
	}
	return c.Limit.of(client)
}

// inTime fails if the call must have ended by now.
func (p *Prepared) inTime(now micros) error {
	if p.deadline <= now {
		return errors.New("bucket: Request.Deadline is past")
	}
	return nil
}

// inOverflow is the same request by one of the clients that share Overflow.
func (p *Prepared) inOverflow() *Prepared {
	shared := *p
	shared.client.Key = Overflow
	shared.charges = make([]charge, len(p.charges))
	for i, c := range p.charges {
		c.slot = c.Charge.slot(Overflow)
		shared.charges[i] = c
	}
	return &shared
}

// hold is the mark of a call that starts now, in the item.
func (p *Prepared) hold(now micros) hold {
	h := hold{start: now, expiry: p.deadline + lasting(HoldGrace), client: p.client.Key, note: p.note}
	for _, c := range p.charges {
		if c.Limit.Return == OnExpiry {
			h.owed = append(h.owed, owed{c.slot, c.inc})
		}
	}
	return h
}
