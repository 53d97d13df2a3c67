package bucket

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"
)

const (
	// HoldGrace is how long after its call's deadline a hold expires: room for a
	// late settle and for clocks that differ.
	HoldGrace = 10 * time.Second

	// tombstoneLife is how long a dead hold bars late sends.
	tombstoneLife = 5 * 60 * second

	// maxTries is how often a reserve is sent anew. The first may guess wrong; the
	// next know the state and fail only if a limit became full or running since. That
	// takes many calls at a time on a limit that hovers about full; of those that did
	// not fit within 3 tries, nearly all do within 8.
	maxTries = 8
)

// attempt is a reserve on its way: it guesses the state, writes, and when the state
// was another looks at what it was, is judged by it, and guesses anew.
type attempt struct {
	*Prepared // what is asked for; once there is no room for the client, in Overflow
	id        string
	start     micros
	mark      []byte // the hold: the same in every send

	// unanswered: some send got no answer and may still arrive.
	unanswered bool
}

// Reserve admits all charges of the request or none, in one conditional write.
//
// The error is ErrUnavailable if the store could not be asked within
// Options.ReserveTimeout, or says that the deadline is past. With an error nothing
// stays charged beyond the hold's expiry.
func (p *Prepared) Reserve(ctx context.Context) (Decision, error) {
	now, last := p.b.now(), p.b.memory.get(p.key)
	if err := p.inTime(now); err != nil {
		return Decision{}, err
	}
	if d := p.forecast(last, now); d.Refused() {
		return d, nil
	}
	if last.recentlyDenied(now) {
		p = p.roomIn(last, now)
	}
	a := &attempt{Prepared: p, id: newID(), start: now, mark: p.hold(now).encode()}
	ctx, cancel := context.WithTimeout(ctx, p.b.opts.ReserveTimeout)
	defer cancel()
	d, err := a.run(ctx, last)
	if d.Reservation == nil && a.unanswered {
		a.bar(ctx)
	}
	return d, err
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// run sends the reserve in the form that the last known state suggests, and again in
// the right one while the state was another.
func (a *attempt) run(ctx context.Context, last seen) (Decision, error) {
	b := a.b
	sweeping := true
	forms := make([]form, len(a.charges))
	for i, c := range a.charges {
		forms[i] = c.firstGuess(last, b.now())
	}
	for try := range maxTries {
		now := b.now()
		w, err := b.write(ctx, a.key, a.reserve(forms, last, now))
		a.unanswered = a.unanswered || w.unanswered
		if err != nil {
			return Decision{}, err
		}
		if w.applied || w.item.hasHold(a.id, a.mark) { // else an earlier send applied
			return a.admitted(w, now)
		}

		if sweeping {
			if _, found := w.item.expired(now); found {
				// Should sweeping fail, what it would have given back is not to be
				// had now: the request is judged without.
				w.item, err = b.sweep(ctx, a.key, w.item, now)
				sweeping = err == nil
			}
		}
		last = see(w.item, 0)
		if err := a.makeRoom(last, now, try >= maxTries/2); err != nil {
			return Decision{}, err
		}
		tats, err := a.tats(w.item)
		if err != nil {
			return Decision{}, err
		}
		if d, err := a.refusal(w.item, tats, now); err != nil || d.Refused() {
			return d, err
		}
		for i, c := range a.charges {
			forms[i] = c.guess(tats[i], b.now(), try > 0)
		}
	}
	return Decision{}, fmt.Errorf("%w: the item changed under %d tries", ErrUnavailable, maxTries)
}

// refusal is what an item has against the request. What limits deny is remembered; that
// too many calls are open is not, since one of them may end at any moment.
func (a *attempt) refusal(it item, tats []micros, now micros) (Decision, error) {
	d := a.judge(tats, now)
	if d.Refused() {
		a.b.memory.put(a.key, it, now)
	}
	full, err := a.inFlight(it)
	if err != nil {
		return Decision{}, err
	}
	if len(full) > 0 {
		d.Denials, d.Challenged = append(d.Denials, full...), false
	}
	return d, nil
}

// admitted answers with the receipt.
func (a *attempt) admitted(w written, now micros) (Decision, error) {
	r, err := a.receipt(w, now)
	if err != nil {
		return Decision{}, err
	}
	a.b.memory.put(a.key, w.item, 0)
	d := Decision{Reservation: r, Limits: make([]Status, len(r.charges))}
	for i, c := range r.charges {
		d.Limits[i] = c.Limit.status(c.after, now)
	}
	return d, nil
}

// makeRoom asks in Overflow from now on, if there is no room for the client's own
// limits, or if others kept taking the room that it was to get (jostled): Overflow's
// nobody can take.
func (a *attempt) makeRoom(last seen, now micros, jostled bool) error {
	if p, room := a.client.place(last, now); room && !(jostled && p.evict != "") {
		return nil
	}
	if a.unanswered {
		// A send of the old form may still apply, and its hold would not be known for
		// ours.
		return fmt.Errorf("%w: no answer, and then no room for the client", ErrUnavailable)
	}
	a.Prepared = a.inOverflow()
	a.mark = a.hold(a.start).encode()
	return nil
}

// roomIn is the request as it has room in the item: in Overflow, if not for the client.
func (p *Prepared) roomIn(last seen, now micros) *Prepared {
	if _, room := p.client.place(last, now); room {
		return p
	}
	return p.inOverflow()
}

// form is how a write moves a TAT on. It fails if the limit is in another state.
type form struct {
	// running: the limit is thought to be running, or never used, and its TAT is moved
	// on from where it is. Otherwise it is thought to be full.
	running bool
	base    micros // where the TAT of a full limit is set afresh from
}

// near and slack are for a limit that others keep moving about full. A TAT less than
// near ahead of now is taken as past by then, and is set afresh from a base that lies
// slack ahead, so that what others charge meanwhile does not matter.
const (
	near  = 50 * milli
	slack = 100 * milli
)

// firstGuess chooses the form of a charge's first send. Of an identity that this
// process has not seen, limits with a long period are more likely running.
func (c charge) firstGuess(last seen, now micros) form {
	tat, known := last.tats[c.tat()]
	if tat > now || !known && c.Limit.Period >= longPeriod {
		return form{running: true}
	}
	return form{base: now}
}

// longPeriod separates limits that are usually running when an identity comes
// back from those that are usually full again.
const longPeriod = 10 * time.Minute

// guess chooses the form for a TAT that the store just gave. It is exact after an
// ordinary wrong guess, which must not cost the caller anything. If others are seen to
// move the limits meanwhile (contended), the guess bears that and costs up to slack
// instead.
func (c charge) guess(tat, now micros, contended bool) form {
	switch {
	case contended:
		return contendedForm(tat, now, c.inc, c.bound)
	case tat > now:
		return form{running: true}
	}
	return form{base: now}
}

// contendedForm is the form for a TAT that the store gave and that others keep moving.
func contendedForm(tat, now, inc, bound micros) form {
	if tat > now+near {
		return form{running: true}
	}
	return form{base: max(tat, now+max(0, min(slack, bound-inc)))}
}

// reserve is the conditional write that takes all charges and marks the hold.
func (a *attempt) reserve(forms []form, last seen, now micros) *update {
	u := newUpdate()
	for i, c := range a.charges {
		u.advance(c.slot, forms[i], now, c.inc, c.bound)
	}
	place, _ := a.client.place(last, now)
	u.joins(a.client, place, last, now)
	h := u.name(holdAttr(a.id))
	u.setTo(h, " = ", u.binary(":hold", a.mark))
	u.increase(attrOpen, u.one())
	u.expires(a.b.itemExpiry(now, a.deadline+lasting(HoldGrace)-now))
	u.require("attribute_not_exists(", h, ")")
	u.require(u.below(attrOpen, u.number(":most", int64(a.maxInFlight))))
	return u
}

// itemExpiry is the TTL, in s, of an item written at now: by then every limit is
// full again and every hold, which lives for life, has long expired.
func (b *Buckets) itemExpiry(now, life micros) int64 {
	return int64((now+lasting(b.opts.LongestPeriod)+life)/second) + 1
}

// bar makes sure that no send of the reserve takes effect any more: with a
// tombstone where the hold would stand, or, if one has applied after all, by a
// cancel. Should the store not answer, the hold expires in the end.
func (a *attempt) bar(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.b.opts.AttemptTimeout)
	defer cancel()
	now := a.b.now()
	u := newUpdate()
	h := u.name(holdAttr(a.id))
	u.setTo(h, " = ", u.binary(":dead", tombstone(now)))
	u.expires(a.b.itemExpiry(now, tombstoneLife))
	u.require("attribute_not_exists(", h, ")")
	w, err := a.b.write(ctx, a.key, u)
	if err != nil || !w.item.hasHold(a.id, a.mark) {
		return
	}
	if r, err := a.receipt(w, now); err == nil {
		_ = r.Cancel(ctx)
	}
}

func tombstone(now micros) []byte { return hold{dead: true, expiry: now + tombstoneLife}.encode() }
