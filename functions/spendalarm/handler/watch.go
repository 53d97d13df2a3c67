package handler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
)

const (
	// setBy names the alarm in the fuse. Whatever else stands there is an operator.
	setBy = "alarm"
	// fuseFor is how long the fuse stays as the alarm set it, unless it is renewed.
	// An hour after spending stopped the alarm would have cleared.
	fuseFor = window
	// claimFor is how long a page under way keeps other runs from paging, pagingTime
	// how long it takes at most: a page never goes out on a claim that has lapsed.
	claimFor   = 90 * time.Second
	pagingTime = 60 * time.Second
)

// watch compares what was spent with the threshold, and does what is due.
func (h *Handler) watch(ctx context.Context, now time.Time, sum ledger.Summary, r *Result) error {
	r.State = stateUnknown
	s, err := h.readState(ctx)
	if err != nil {
		return err
	}
	limit, base, baseErr := h.threshold(ctx, now, s)
	if baseErr != nil && h.Policy.Alarm.Threshold == 0 {
		return baseErr // there is nothing to compare with
	}
	r.threshold, r.ThresholdUSD, r.ThresholdFrom = limit.amount, limit.amount.String(), limit.why
	if base.known {
		r.NormalPeakUSD = base.highest.String()
	}
	spend := sum.Total.Cost
	e := s.due(now, spend, limit.amount, h.Policy.Alarm.RepeatEvery)
	mine := false
	if e != none {
		if mine, err = h.claim(ctx, now, &s); err != nil {
			return errors.Join(baseErr, err)
		}
	}
	r.incident(s)
	switch {
	case e == cleared && !mine:
		// Another run releases the fuse: renewing it now would undo that.
		r.readFuse(h.Fuse.Current(ctx))
		return baseErr
	case !mine:
		return errors.Join(baseErr, h.tendFuse(ctx, now, s, r))
	}
	p := page{event: e, threshold: limit, baseline: base, sum: sum}
	return errors.Join(baseErr, h.page(ctx, now, s, p, r))
}

// incident says in r what s knows of one.
func (r *Result) incident(s state) {
	r.State, r.Since, r.Level = stateNormal, nil, s.level
	if !s.since.IsZero() {
		r.State, r.Since = stateAlarm, &s.since
	}
}

// claim takes the page for this run, and notes that there is an incident. It reports
// false if another run has it.
func (h *Handler) claim(ctx context.Context, now time.Time, s *state) (bool, error) {
	claiming := h.Now() // summing may have taken a while
	if claiming.Before(s.claimed) {
		return false, nil
	}
	next := *s
	next.claimed = claiming.Add(claimFor)
	if next.since.IsZero() {
		next.since = now
	}
	mine, err := h.writeState(ctx, &next)
	if mine {
		*s = next
	}
	return mine, err
}

// page sets the fuse, publishes and confirms, in this order. Without a page there is
// no confirmation, so that the next run pages.
func (h *Handler) page(ctx context.Context, now time.Time, s state, p page, r *Result) error {
	err := h.publish(ctx, now, s, p, r)
	next := s
	if r.Paged != "" {
		next = s.after(p.event, now, p.sum.Total.Cost, p.threshold.amount)
	} else {
		next.claimed = time.Time{}
	}
	// Also when the run's time is up.
	confirmed, confirmErr := h.writeState(context.WithoutCancel(ctx), &next)
	if confirmErr == nil && !confirmed {
		confirmErr = errors.New("the alarm's state was changed by another run meanwhile")
	}
	if confirmErr == nil {
		r.incident(next)
	}
	return errors.Join(err, confirmErr)
}

// publish sets or releases the fuse and sends the page. r.Paged says whether it went
// out.
func (h *Handler) publish(ctx context.Context, now time.Time, s state, p page, r *Result) error {
	ctx, cancel := context.WithTimeout(ctx, pagingTime)
	defer cancel()
	var fuseErr error
	if p.event == cleared {
		// First of all, and a reason not to go on: nobody tends a fuse without an incident.
		if err := h.Fuse.Release(ctx, setBy); err != nil {
			return err
		}
		r.readFuse(h.Fuse.Current(ctx))
		r.State, r.Since, r.Level = stateNormal, &s.since, 0
	} else {
		fuseErr = h.tendFuse(ctx, now, s, r)
		r.Level = s.after(p.event, now, p.sum.Total.Cost, p.threshold.amount).level
	}
	// A page without a projection is better than none.
	recent, err := h.Ledger.Sum(ctx, now.Add(-pace), now)
	if err == nil {
		p.projected, p.hasProjected = times(recent.Total.Cost, float64(window/pace)), true
		r.ProjectedUSD = p.projected.String()
	}
	r.Paged = string(p.event)
	if err := h.send(ctx, p, *r); err != nil {
		r.Paged = ""
		return errors.Join(fuseErr, fmt.Errorf("publishing: %w", err))
	}
	return fuseErr
}

// tendFuse sets the fuse while there is an incident, or keeps it set.
func (h *Handler) tendFuse(ctx context.Context, now time.Time, s state, r *Result) error {
	var err error
	if to := fuse.State(h.Policy.Alarm.Fuse); to.Valid() && !s.since.IsZero() {
		_, err = h.Fuse.SetIfFree(ctx, fuse.Setting{State: to, Until: now.Add(fuseFor), SetBy: setBy}, s.since)
	}
	r.readFuse(h.Fuse.Current(ctx))
	return err
}

// readFuse takes the fuse's setting; without one it stays unknown.
func (r *Result) readFuse(s fuse.Setting, err error) {
	if err != nil {
		return
	}
	r.Fuse, r.FuseSetBy, r.FuseUntil = string(s.State), s.SetBy, nil
	if !s.Until.IsZero() {
		until := s.Until.UTC()
		r.FuseUntil = &until
	}
}
