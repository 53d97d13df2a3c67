package bucket

import (
	"sync"
	"time"
)

// Reservation is the receipt of an admitted request. Exactly one settle or
// cancel takes effect, whoever repeats it.
type Reservation struct {
	b       *Buckets
	key, id string
	client  string // "": none
	hold    []byte // the exact value in the store
	start   micros
	charges []taken

	// unanswered: some send of the reserve got no answer and may still arrive.
	unanswered bool
	// afterKnown: what the reserve left behind is known, because the store answered
	// the send that applied. Otherwise it is known of a later moment.
	afterKnown bool

	mu      sync.Mutex
	settled bool
	left    []Status
}

// taken is a charge with what the reserve left behind of its limit.
type taken struct {
	charge
	after, below micros  // the TAT, and how much of it lay beneath this call
	then         returns // what was given back and cleared until then
}

// ID names the reservation: 11 characters of base64url, 64 random bits.
func (r *Reservation) ID() string { return r.id }

// Start is when the reservation was asked for, by this process's clock.
func (r *Reservation) Start() time.Time { return r.start.time() }

// Left is how the settle left the limits, in the order of the charges; nil before that, or
// if it is not known.
func (r *Reservation) Left() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// look takes down how an item has the limits.
func (r *Reservation) look(it item, now micros) {
	left := make([]Status, len(r.charges))
	for i, c := range r.charges {
		tat, err := it.micros(c.tat())
		if err != nil {
			return
		}
		left[i] = c.Limit.status(tat, now)
	}
	r.left = left
}

// receipt is what remains of an attempt that applied, or of which an earlier send did.
func (a *attempt) receipt(w written, now micros) (*Reservation, error) {
	r := &Reservation{
		b: a.b, key: a.key, id: a.id, client: a.client.Key, hold: a.mark, start: a.start,
		charges:    make([]taken, len(a.charges)),
		unanswered: a.unanswered, afterKnown: w.applied,
	}
	for i, c := range a.charges {
		var err error
		if r.charges[i], err = c.taken(w.item, now); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// taken is the charge with what an item says of its limit after the reserve.
func (c charge) taken(it item, now micros) (taken, error) {
	after, err := it.micros(c.tat())
	if err != nil {
		return taken{}, err
	}
	then, err := it.returns(c.slot)
	return taken{charge: c, after: after, below: beneath(after, c.inc, now), then: then}, err
}
