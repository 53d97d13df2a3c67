package alarm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/verdict"
)

const (
	// why is the reason that stands in the fuse.
	why = "spending is above its threshold"
	// setBy names the alarm in the fuse. Whatever else stands there is an operator.
	setBy = "alarm"
	// fuseFor is how long the fuse stays as the alarm set it, unless it is renewed.
	// An hour after spending stopped the alarm would have cleared.
	fuseFor = window
	// claimFor is how long a page under way keeps other runs from paging, pagingTime
	// how long it takes at most: a page never goes out on a claim that has lapsed.
	claimFor   = 90 * time.Second
	pagingTime = 60 * time.Second
	// maxTries is how often a run decides, of those that others overtake.
	maxTries = 8
)

// watch compares what was spent with the threshold, and does what is due. Each run
// that compares writes the state, so that runs are in an order: of the time up to
// which they have seen.
func (h *Handler) watch(ctx context.Context, now time.Time, sum ledger.Summary, r *Result) error {
	r.State = stateUnknown
	hours, pastErr := h.pastHours(ctx, now)
	if pastErr != nil && h.Policy.Alarm.Threshold == 0 {
		return pastErr // there is nothing to compare with
	}
	for range maxTries {
		s, err := h.readState(ctx)
		if err != nil {
			return errors.Join(pastErr, err)
		}
		decided := h.Now() // summing and reading may have taken a while
		r.incident(s)
		if s.sawMoreThan(now) {
			r.Outdated = true
			return nil
		}
		base := newBaseline(hours, s.hoursInAlarm(now), now)
		limit := newThreshold(h.Policy.Alarm, base)
		r.compared(limit, base)
		s.verdict = verdict.Verdict{Threshold: limit.amount, From: limit.why, Peak: base.highest}
		if s.othersPage(decided) {
			// Another run is paging, and sets or releases the fuse. What is due beyond
			// that is still due at the next tick.
			r.readFuse(h.fuse.Current(ctx))
			return pastErr
		}
		e := s.due(now, sum.Total.Cost, limit.amount, h.Policy.Alarm.RepeatEvery)
		first, err := h.note(ctx, e, now, decided, &s)
		if err != nil {
			return errors.Join(pastErr, err)
		}
		if !first {
			continue // another run changed the state meanwhile: decide by what it is now
		}
		r.incident(s)
		if e == none {
			return errors.Join(pastErr, h.tendFuse(ctx, now, decided, s, r))
		}
		p := page{event: e, decided: decided, threshold: limit, baseline: base, sum: sum}
		return errors.Join(pastErr, h.page(ctx, now, s, p, r))
	}
	return errors.Join(pastErr, fmt.Errorf("the alarm's state was changed by other runs %d times", maxTries))
}

// incident says in r what s knows of one.
func (r *Result) incident(s state) {
	r.State, r.Since, r.Level = stateNormal, nil, s.level
	if !s.since.IsZero() {
		r.State, r.Since = stateAlarm, &s.since
	}
}

// note writes up to when this run has seen. If something is to be told it also takes
// the page for this run, and notes that there is an incident. It reports false if
// another run was first.
func (h *Handler) note(ctx context.Context, e event, now, decided time.Time, s *state) (first bool, err error) {
	if e == none && s.seen.Equal(now.Truncate(seenUnit)) {
		return true, nil // there is nothing new
	}
	next := *s
	next.seen = now.Truncate(seenUnit)
	if e != none {
		next.claimed = decided.Add(claimFor)
		if next.since.IsZero() {
			next.since = now
		}
	}
	if first, err = h.writeState(ctx, &next); first {
		*s = next
	}
	return first, err
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
		if err := h.fuse.Release(ctx, setBy); err != nil {
			return err
		}
		r.readFuse(h.fuse.Current(ctx))
		r.State, r.Since, r.Level = stateNormal, &s.since, 0
	} else {
		fuseErr = h.tendFuse(ctx, now, p.decided, s, r)
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

// tendFuse sets the fuse while there is an incident, or keeps it set. decided is when
// this run knew of the incident: a later run may have released the fuse since.
func (h *Handler) tendFuse(ctx context.Context, now, decided time.Time, s state, r *Result) error {
	var err error
	if to := fuse.State(h.Policy.Alarm.Fuse); to.Valid() && !s.since.IsZero() {
		_, err = h.fuse.SetIfFree(ctx, fuse.Setting{State: to, Until: now.Add(fuseFor), SetBy: setBy, Why: why}, s.since, decided)
	}
	r.readFuse(h.fuse.Current(ctx))
	return err
}

// readFuse takes the fuse's setting; without one it stays unknown.
func (r *Result) readFuse(s fuse.Status, err error) {
	if err != nil {
		return
	}
	r.Fuse, r.FuseSetBy, r.FuseUntil = string(s.State), s.SetBy, nil
	if !s.Until.IsZero() {
		until := s.Until.UTC()
		r.FuseUntil = &until
	}
}
