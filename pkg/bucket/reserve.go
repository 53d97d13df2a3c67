package bucket

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// HoldGrace is how long after its call's deadline a hold expires: room for a
	// late settle and for clocks that differ.
	HoldGrace = 10 * time.Second

	// tombstoneLife is how long, in µs, a dead hold bars late sends.
	tombstoneLife = int64(5 * time.Minute / time.Microsecond)

	// maxTries is how often a reserve is sent anew. The first may guess wrong; the
	// next know the state and fail only if a limit became full or running since. That
	// takes many calls at a time on a limit that hovers about full; of those that did
	// not fit within 3 tries, nearly all do within 8.
	maxTries = 8

	// near and slack, in µs, are for a limit that others keep moving about full. A TAT
	// less than near ahead of now is taken as past by then, and is set afresh from a
	// base that lies slack ahead, so that what others charge meanwhile does not matter.
	near  = int64(50 * time.Millisecond / time.Microsecond)
	slack = int64(100 * time.Millisecond / time.Microsecond)
)

// Reservation is the receipt of an admitted request. Exactly one settle or
// cancel takes effect, whoever repeats it.
type Reservation struct {
	b             *Buckets
	key, id       string
	hold          []byte // the exact value in the store; the same in every send
	start, expiry int64  // µs
	maxInFlight   int
	client        Client
	note          []byte
	charges       []charge

	// unanswered: some send of the reserve got no answer and may still arrive.
	unanswered bool
	// afterKnown: what the reserve left behind is known, because the store answered
	// the send that applied. Otherwise the charges have it from a later moment.
	afterKnown bool

	mu      sync.Mutex
	settled bool
}

// charge is a Charge prepared for the store.
type charge struct {
	Charge
	period  int64  // µs
	bound   int64  // µs: the period, or the share of it up to which there is no challenge
	inc     int64  // µs
	client  string // whose limit it is; "": the identity's own
	tat     string // attribute
	credits string // attribute

	// What the reserve left behind: the TAT, how much of that lay beneath this call,
	// and what was given back and cleared until then.
	after, below int64
	then         returns
}

// ID names the reservation: 11 characters of base64url, 64 random bits.
func (r *Reservation) ID() string { return r.id }

// Start is when the reservation was asked for, by this process's clock.
func (r *Reservation) Start() time.Time { return time.UnixMicro(r.start) }

// Reserve admits all charges of a request or none, in one conditional write.
//
// The error is ErrUnavailable if the store could not be asked within
// Options.ReserveTimeout, or says what is wrong with the request. With an error
// nothing stays charged beyond the hold's expiry.
func (b *Buckets) Reserve(ctx context.Context, req Request) (Decision, error) {
	r, last, d, err := b.prepare(req)
	if err != nil || d.Refused() {
		return d, err
	}

	ctx, cancel := context.WithTimeout(ctx, b.opts.ReserveTimeout)
	defer cancel()
	d, err = r.admit(ctx, last)
	if d.Reservation == nil && r.unanswered {
		r.bar(ctx)
	}
	return d, err
}

// Forecast answers a request without asking the store, if that is possible: by a
// denial of a moment ago, or because it can never fit. Anything else comes out as
// neither admitted nor refused. For those who must do something dear before they
// Reserve.
func (b *Buckets) Forecast(req Request) (Decision, error) {
	_, _, d, err := b.prepare(req)
	return d, err
}

// prepare makes the reservation, recalls the identity, and refuses what needs no
// store for that.
func (b *Buckets) prepare(req Request) (*Reservation, seen, Decision, error) {
	now := b.now()
	r, err := b.newReservation(req, now)
	if err != nil {
		return nil, seen{}, Decision{}, err
	}
	last := b.memory.get(req.Key)
	return r, last, r.deniedUnasked(last, now), nil
}

func (b *Buckets) newReservation(req Request, now int64) (*Reservation, error) {
	switch {
	case req.Key == "" || len(req.Key) > 1024:
		return nil, errors.New("bucket: Request.Key must be 1 to 1024 bytes")
	case len(req.Charges) == 0:
		return nil, errors.New("bucket: Request.Charges is empty")
	case req.MaxInFlight < 1 || req.MaxInFlight > MaxInFlight:
		return nil, fmt.Errorf("bucket: Request.MaxInFlight is not between 1 and %d", MaxInFlight)
	case len(req.Note) > MaxNote:
		return nil, fmt.Errorf("bucket: Request.Note is longer than %d bytes", MaxNote)
	case req.Deadline.UnixMicro() <= now:
		return nil, errors.New("bucket: Request.Deadline is past")
	}
	if err := req.Client.validate(); err != nil {
		return nil, err
	}
	r := &Reservation{
		b: b, key: req.Key, id: newID(), start: now,
		expiry:      req.Deadline.Add(HoldGrace).UnixMicro(),
		maxInFlight: req.MaxInFlight,
		client:      req.Client,
		note:        req.Note,
		charges:     make([]charge, len(req.Charges)),
	}
	for i, c := range req.Charges {
		if err := c.Limit.Validate(); err != nil {
			return nil, err
		}
		if kept := c.Limit.kept(); kept > b.opts.LongestPeriod {
			return nil, fmt.Errorf("bucket: limit %s: period %s is above Options.LongestPeriod", c.Limit.Name, kept)
		}
		p := c.Limit.period()
		inc, err := increment(c.Cost, c.Limit.Capacity, p)
		if err != nil {
			return nil, fmt.Errorf("%w: limit %s", err, c.Limit.Name)
		}
		if c.OfClient && req.Client.Key == "" {
			return nil, fmt.Errorf("bucket: limit %s is of a client and there is none", c.Limit.Name)
		}
		r.charges[i] = charge{Charge: c, period: p, bound: p, inc: inc}
		if c.Soft > 0 && c.Soft < 1 {
			r.charges[i].bound = int64(c.Soft * float64(p))
		}
		r.charges[i].nameFor(req.Client.Key)
		for _, earlier := range r.charges[:i] {
			if earlier.tat == r.charges[i].tat {
				return nil, fmt.Errorf("bucket: limit %s stands twice", c.Limit.Name)
			}
		}
	}
	r.mark()
	return r, nil
}

// nameFor sets the attributes of a charge.
func (c *charge) nameFor(client string) {
	if c.OfClient {
		c.client = client
	}
	c.tat = tatAttr(c.client, c.Limit.Name, c.period)
	c.credits = creditsAttr(c.client, c.Limit.Name, c.period)
}

// mark encodes the hold.
func (r *Reservation) mark() {
	h := hold{start: r.start, expiry: r.expiry, client: r.client.Key, note: r.note}
	for _, c := range r.charges {
		if c.Limit.Return == OnExpiry {
			h.returns = append(h.returns, returned{client: c.client, name: c.Limit.Name, period: c.period, inc: c.inc})
		}
	}
	r.hold = h.encode()
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// deniedUnasked answers what needs no store: a cost above a capacity, and what a
// denial of a moment ago still rules out. Each request is judged anew by the
// remembered TATs, so that a cheaper one is not refused with a dearer one.
func (r *Reservation) deniedUnasked(last seen, now int64) Decision {
	tats := r.remembered(last)
	var impossible []Denial
	for i, c := range r.charges {
		if c.inc > c.period {
			impossible = append(impossible, Denial{Limit: c.Limit, Requested: c.Cost, Impossible: true,
				Remaining: remaining(tats[i], now, c.Limit.Capacity, c.period)})
		}
	}
	if len(impossible) > 0 {
		return Decision{Denials: impossible, Limits: r.statuses(tats, now)}
	}
	for _, c := range r.charges {
		if c.inc > c.bound { // beyond its share even of a full limit
			return Decision{Challenged: true, Limits: r.statuses(tats, now)}
		}
	}
	if !last.recentlyDenied(now) {
		return Decision{}
	}
	if err := r.makeRoom(last, now, false); err != nil {
		return Decision{}
	}
	return r.judge(r.remembered(last), now)
}

// judge holds a request against TATs: what denies it, or else whether it is to be
// challenged.
func (r *Reservation) judge(tats []int64, now int64) Decision {
	d := Decision{Denials: r.denials(tats, now), Limits: r.statuses(tats, now)}
	if len(d.Denials) > 0 {
		return d
	}
	for i, c := range r.charges {
		d.Challenged = d.Challenged || !fits(tats[i], now, c.inc, c.bound)
	}
	return d
}

func (r *Reservation) remembered(last seen) []int64 {
	tats := make([]int64, len(r.charges))
	for i, c := range r.charges {
		tats[i] = last.tats[c.tat]
	}
	return tats
}

// admit sends the reserve in the form that the last known state suggests, and
// again in the right one while the state was another.
func (r *Reservation) admit(ctx context.Context, last seen) (Decision, error) {
	b := r.b
	bases := r.firstGuess(last, b.now())
	place, _ := r.client.place(last, b.now())
	sweeping := true
	for try := 0; try < maxTries; {
		now := b.now()
		w, err := b.write(ctx, r.key, r.reserve(bases, place, last, now))
		r.unanswered = r.unanswered || w.unanswered
		if err != nil {
			return Decision{}, err
		}
		if w.applied || w.item.hasHold(r.id, r.hold) { // else an earlier send applied
			r.afterKnown = w.applied
			return r.admitted(w.item, now)
		}

		if sweeping {
			if _, found := w.item.expired(now); found {
				// Should sweeping fail, what it would have given back is not to be
				// had now: the request is judged without.
				w.item, err = b.sweep(ctx, r.key, w.item, now)
				sweeping = err == nil
			}
		}
		last = see(w.item, 0)
		if err := r.makeRoom(last, now, try >= maxTries/2); err != nil {
			return Decision{}, err
		}
		place, _ = r.client.place(last, now)
		tats, err := r.tats(w.item)
		if err != nil {
			return Decision{}, err
		}
		d := r.judge(tats, now)
		if d.Refused() {
			b.memory.put(r.key, w.item, now)
		}
		full, err := r.inFlight(w.item)
		if err != nil {
			return Decision{}, err
		}
		d.Denials = append(d.Denials, full...)
		if d.Refused() {
			d.Challenged = len(d.Denials) == 0
			return d, nil
		}
		bases = r.guess(tats, b.now(), try > 0)
		try++
	}
	return Decision{}, fmt.Errorf("%w: the item changed under %d tries", ErrUnavailable, maxTries)
}

// makeRoom makes the request one of the clients that share Overflow, if there is
// no room for its own, or if others kept taking the room that it was to get
// (jostled): Overflow's nobody can take.
func (r *Reservation) makeRoom(last seen, now int64, jostled bool) error {
	if p, room := r.client.place(last, now); room && !(jostled && p.evict != "") {
		return nil
	}
	if r.unanswered {
		// A send of the old form may still apply, and its hold would not be known for
		// ours.
		return fmt.Errorf("%w: no answer, and then no room for the client", ErrUnavailable)
	}
	r.client.Key = Overflow
	for i := range r.charges {
		r.charges[i].nameFor(Overflow)
	}
	r.mark()
	return nil
}

// inFlight are the denials for too many open calls, of the identity and of the
// client.
func (r *Reservation) inFlight(it item) ([]Denial, error) {
	var full []Denial
	check := func(attr string, most int) error {
		open, err := it.number(attr)
		if err == nil && open >= int64(most) {
			full = append(full, Denial{Limit: Limit{Name: InFlight, Capacity: int64(most)}, Requested: 1})
		}
		return err
	}
	if r.client.Key != "" {
		if err := check(openAttr(r.client.Key), r.client.MaxInFlight); err != nil {
			return nil, err
		}
	}
	return full, check(attrOpen, r.maxInFlight)
}

// running in place of a base says that the limit is thought to be running, or
// never used: its TAT is moved on from where it is. Otherwise it is thought full
// and its TAT is set afresh from the base.
const running = -1

// firstGuess chooses the forms of the first send. Of an identity that this
// process has not seen, limits with a long period are more likely running.
func (r *Reservation) firstGuess(last seen, now int64) []int64 {
	bases := make([]int64, len(r.charges))
	for i, c := range r.charges {
		tat, known := last.tats[c.tat]
		if tat > now || !known && c.Limit.Period >= longPeriod {
			bases[i] = running
		} else {
			bases[i] = now
		}
	}
	return bases
}

// longPeriod separates limits that are usually running when an identity comes
// back from those that are usually full again.
const longPeriod = 10 * time.Minute

// guess chooses the forms for TATs that the store just gave. They are exact after an
// ordinary wrong guess, which must not cost the caller anything. If others are seen to
// move the limits meanwhile (contended), they bear that and cost up to slack instead.
func (r *Reservation) guess(tats []int64, now int64, contended bool) []int64 {
	bases := make([]int64, len(r.charges))
	for i, c := range r.charges {
		switch {
		case contended:
			bases[i] = baseFor(tats[i], now, c.inc, c.bound)
		case tats[i] > now:
			bases[i] = running
		default:
			bases[i] = now
		}
	}
	return bases
}

// baseFor chooses the form for a TAT that the store gave and that others keep moving.
func baseFor(tat, now, inc, period int64) int64 {
	if tat > now+near {
		return running
	}
	return max(tat, now+max(0, min(slack, period-inc)))
}

// reserve is the conditional write that takes all charges and marks the hold.
func (r *Reservation) reserve(bases []int64, place presence, last seen, now int64) *update {
	u := newUpdate()
	for i, c := range r.charges {
		u.advance(c.tat, bases[i], now, c.inc, c.bound)
	}
	u.joins(r.client, place, last, now)
	h, o, e := u.name(holdPrefix+r.id), u.name(attrOpen), u.name(attrExpires)
	u.setTo(h, " = ", u.binary(r.hold))
	u.setTo(o, " = if_not_exists(", o, ", ", u.number(0), ") + ", u.number(1))
	u.setTo(e, " = ", u.number(r.b.itemExpiry(now, r.expiry-now)))
	u.require("attribute_not_exists(", h, ")")
	u.require("(attribute_not_exists(", o, ") OR ", o, " < ", u.number(int64(r.maxInFlight)), ")")
	return u
}

// advance moves a TAT on by inc, if that fits: from where it is if the limit is
// running, else from base.
func (u *update) advance(tat string, base, now, inc, period int64) {
	t := u.name(tat)
	if base == running {
		// This commutes with what others do. A limit that was never used starts at now.
		nowValue := u.number(now)
		u.setTo(t, " = if_not_exists(", t, ", ", nowValue, ") + ", u.number(inc))
		u.require("(attribute_not_exists(", t, ") OR (", t, " > ", nowValue, " AND ", t, " <= ", u.number(latest(now, inc, period)), "))")
		return
	}
	u.setTo(t, " = ", u.number(base+inc))
	u.require("(attribute_not_exists(", t, ") OR ", t, " <= ", u.number(base), ")")
}

// itemExpiry is the TTL, in s, of an item written at now: by then every limit is
// full again and every hold, which lives for life µs, has long expired.
func (b *Buckets) itemExpiry(now, life int64) int64 {
	return (now+b.opts.LongestPeriod.Microseconds()+life)/microsPerSecond + 1
}

// admitted fills the receipt from the item.
func (r *Reservation) admitted(it item, now int64) (Decision, error) {
	tats, err := r.tats(it)
	if err != nil {
		return Decision{}, err
	}
	for i := range r.charges {
		c := &r.charges[i]
		c.after, c.below = tats[i], beneath(tats[i], c.inc, now)
		if c.then, err = it.returns(c.client, c.Limit.Name, c.period); err != nil {
			return Decision{}, err
		}
	}
	r.b.memory.put(r.key, it, 0)
	return Decision{Reservation: r, Limits: r.statuses(tats, now)}, nil
}

func (r *Reservation) tats(it item) ([]int64, error) {
	tats := make([]int64, len(r.charges))
	for i, c := range r.charges {
		var err error
		if tats[i], err = it.number(c.tat); err != nil {
			return nil, err
		}
	}
	return tats, nil
}

// denials are the limits that do not fit, the longest wait first.
func (r *Reservation) denials(tats []int64, now int64) []Denial {
	var ds []Denial
	for i, c := range r.charges {
		if fits(tats[i], now, c.inc, c.period) {
			continue
		}
		ds = append(ds, Denial{
			Limit: c.Limit, Requested: c.Cost,
			Remaining:  remaining(tats[i], now, c.Limit.Capacity, c.period),
			RetryAfter: micros(wait(tats[i], now, c.inc, c.period)),
		})
	}
	slices.SortStableFunc(ds, func(a, b Denial) int { return cmp.Compare(b.RetryAfter, a.RetryAfter) })
	return ds
}

func (r *Reservation) statuses(tats []int64, now int64) []Status {
	ss := make([]Status, len(r.charges))
	for i, c := range r.charges {
		ss[i] = c.Limit.status(tats[i], now)
	}
	return ss
}

// bar makes sure that no send of the reserve takes effect any more: with a
// tombstone where the hold would stand, or, if one has applied after all, by a
// cancel. Should the store not answer, the hold expires in the end.
func (r *Reservation) bar(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.b.opts.AttemptTimeout)
	defer cancel()
	now := r.b.now()
	u := newUpdate()
	h := u.name(holdPrefix + r.id)
	u.setTo(h, " = ", u.binary(tombstone(now)))
	u.setTo(u.name(attrExpires), " = ", u.number(r.b.itemExpiry(now, tombstoneLife)))
	u.require("attribute_not_exists(", h, ")")
	w, err := r.b.write(ctx, r.key, u)
	if err != nil || !w.item.hasHold(r.id, r.hold) {
		return
	}
	if _, err := r.admitted(w.item, now); err == nil {
		_ = r.Cancel(ctx)
	}
}

func tombstone(now int64) []byte { return hold{dead: true, expiry: now + tombstoneLife}.encode() }
