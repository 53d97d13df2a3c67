package bucket

import (
	"cmp"
	"slices"
)

// The judge holds a request against a state, be it the store's or one that is
// remembered. Everything here is pure: it sends nothing and changes nothing.

// Forecast judges a request by what this process remembers, without asking the
// store: it is refused if it can never fit, or by what denied a request a moment ago.
// Anything else comes out as neither admitted nor refused. For those who must do
// something dear before they Reserve.
func (p *Prepared) Forecast() Decision {
	return p.forecast(p.b.memory.get(p.key), p.b.now())
}

// forecast judges each request anew by the TATs that were remembered, so that a
// cheaper one is not refused with a dearer one.
func (p *Prepared) forecast(last seen, now micros) Decision {
	if d := p.impossible(last, now); d.Refused() || !last.recentlyDenied(now) {
		return d
	}
	p = p.roomIn(last, now)
	return p.judge(p.remembered(last), now)
}

// impossible refuses what not even a full limit would admit.
func (p *Prepared) impossible(last seen, now micros) Decision {
	tats := p.remembered(last)
	var d Decision
	for i, c := range p.charges {
		if c.inc > c.period {
			d.Denials = append(d.Denials, Denial{Limit: c.Limit, Requested: c.Cost, Impossible: true,
				Remaining: remaining(tats[i], now, c.Limit.Capacity, c.period)})
		}
		d.Challenged = d.Challenged || c.inc > c.bound
	}
	if len(d.Denials) > 0 {
		d.Challenged = false
	}
	if d.Refused() {
		d.Limits = p.statuses(tats, now)
	}
	return d
}

// judge says what denies a request, given the TATs of its limits, or else whether it
// is to be challenged.
func (p *Prepared) judge(tats []micros, now micros) Decision {
	d := Decision{Denials: p.denials(tats, now), Limits: p.statuses(tats, now)}
	if len(d.Denials) > 0 {
		return d
	}
	for i, c := range p.charges {
		d.Challenged = d.Challenged || !fits(tats[i], now, c.inc, c.bound)
	}
	return d
}

// denials are the limits that do not fit, the longest wait first.
func (p *Prepared) denials(tats []micros, now micros) []Denial {
	var ds []Denial
	for i, c := range p.charges {
		if fits(tats[i], now, c.inc, c.period) {
			continue
		}
		ds = append(ds, Denial{
			Limit: c.Limit, Requested: c.Cost,
			Remaining:  remaining(tats[i], now, c.Limit.Capacity, c.period),
			RetryAfter: wait(tats[i], now, c.inc, c.period).duration(),
		})
	}
	slices.SortStableFunc(ds, func(a, b Denial) int { return cmp.Compare(b.RetryAfter, a.RetryAfter) })
	return ds
}

// inFlight are the denials for too many open calls, of the client and of the identity.
func (p *Prepared) inFlight(it item) ([]Denial, error) {
	var full []Denial
	check := func(attr string, most int) error {
		open, err := it.number(attr)
		if err == nil && open >= int64(most) {
			full = append(full, Denial{Limit: Limit{Name: InFlight, Capacity: int64(most)}, Requested: 1})
		}
		return err
	}
	if p.client.Key != "" {
		if err := check(openAttr(p.client.Key), p.client.MaxInFlight); err != nil {
			return nil, err
		}
	}
	return full, check(attrOpen, p.maxInFlight)
}

func (p *Prepared) statuses(tats []micros, now micros) []Status {
	ss := make([]Status, len(p.charges))
	for i, c := range p.charges {
		ss[i] = c.Limit.status(tats[i], now)
	}
	return ss
}

// tats are the TATs of the request's limits in an item.
func (p *Prepared) tats(it item) ([]micros, error) {
	tats := make([]micros, len(p.charges))
	for i, c := range p.charges {
		var err error
		if tats[i], err = it.micros(c.tat()); err != nil {
			return nil, err
		}
	}
	return tats, nil
}

// remembered are the same TATs as this process last saw them.
func (p *Prepared) remembered(last seen) []micros {
	tats := make([]micros, len(p.charges))
	for i, c := range p.charges {
		tats[i] = last.tats[c.tat()]
	}
	return tats
}
