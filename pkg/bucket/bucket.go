package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// DynamoDB is the part of *dynamodb.Client that the package uses.
type DynamoDB interface {
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Return says when what was charged to a limit comes back.
type Return uint8

const (
	// Never: the charge stays, whatever became of the call. For counts of
	// requests, so that failing calls cannot be made for free.
	Never Return = iota
	// OnSettle: a settle gives back what was not used; an expired hold keeps the
	// worst case. For tokens and money, which the provider may have billed.
	OnSettle
	// OnExpiry: as OnSettle, and an expired hold gives all of it back. For
	// quotas of results ("10 a day"), which a lost call did not deliver.
	OnExpiry
)

// Limit is one limit of an identity: what may be spent at once (Capacity) and
// how long it takes to be full again (Period). Over any time t since it was
// full, at most Capacity + Capacity/Period x t is admitted.
type Limit struct {
	Name     string        // [a-z0-9_-], 1 to 32 characters
	Capacity int64         // in the limit's own unit, at least 1
	Period   time.Duration // whole seconds, 1 s to Options.LongestPeriod, unless Life says otherwise
	Return   Return
	// Life, if above 0, is how long after a reserve the limit matters at all, because
	// what it counts ends by then. It, and not Period, is at most Options.LongestPeriod.
	Life time.Duration
}

func (l Limit) period() micros { return lasting(l.Period) }

// kept is how long after a reserve the limit's state must be there.
func (l Limit) kept() time.Duration {
	if l.Life > 0 {
		return l.Life
	}
	return l.Period
}

// Charge is a worst-case cost on a limit, at least 1, in the limit's unit.
type Charge struct {
	Limit Limit
	Cost  int64
	// OfClient: the limit is that of Request.Client, not of the identity.
	OfClient bool
	// Soft, if above 0 and below 1, is the share of the limit beyond which the
	// request is not denied but challenged. Nothing is stored for it.
	Soft float64
}

// Request asks for a reservation.
type Request struct {
	// Key is the identity's partition key, 1 to 1024 bytes.
	Key string
	// Charges are admitted together or not at all: 1 to MaxLimits. Each limit stands once.
	Charges []Charge
	// Client is the part of the identity that calls, if it has parts.
	Client Client
	// MaxInFlight is the most calls that the identity may have open, this one
	// included; 1 to MaxInFlight.
	MaxInFlight int
	// Deadline is when the call ends at the latest, settling included. The hold
	// expires HoldGrace later.
	Deadline time.Time
	// Note comes back with an abandoned hold; at most MaxNote bytes.
	Note []byte
}

// MaxInFlight bounds the calls that an identity may have open at a time. An item has
// at most 400 KB, and a hold about 100 bytes: so many leave three quarters of it to the
// limits.
const MaxInFlight = 1000

// MaxLimits is the most limits of a Request and of a Clear. Each is one write, and the
// store takes expressions of at most 4 KB.
const MaxLimits = 16

// Decision is what became of a Request.
type Decision struct {
	// Reservation is the receipt of an admitted request; nil if it was denied.
	Reservation *Reservation
	// Denials are the limits that did not fit, the longest wait first; empty if
	// the request was admitted. A denial has changed nothing.
	Denials []Denial
	// Challenged: nothing was admitted or denied, only a Soft share is exceeded.
	Challenged bool
	// Limits are the states of the request's limits, in the order of its charges,
	// right after the admission or at the denial.
	Limits []Status
}

// Refused reports whether the request was denied or challenged.
func (d Decision) Refused() bool { return len(d.Denials) > 0 || d.Challenged }

// InFlight is the name of the limit on open calls in a Denial.
const InFlight = "in_flight"

// Denial is a limit that did not fit.
type Denial struct {
	Limit     Limit // for InFlight only Name and Capacity are set
	Requested int64
	Remaining int64 // the largest cost that would have fitted; never below 0
	// RetryAfter is how long to wait until the same request fits if nothing else
	// happens. It is 0 for InFlight (nobody knows) and for an Impossible request.
	RetryAfter time.Duration
	// Impossible: the cost exceeds the capacity and will never fit.
	Impossible bool
}

// Status is the state of one limit at a moment.
type Status struct {
	Limit     Limit
	Remaining int64         // the largest cost that fits, 0 to Capacity
	FullIn    time.Duration // until the limit is full again; 0 if it is
	NextIn    time.Duration // until at least 1 fits; 0 if it does
}

// After is the state a time later, if nothing else happens.
func (s Status) After(d time.Duration) Status {
	return s.Limit.status(lasting(s.FullIn), lasting(max(0, d)))
}

// FitsIn is how long it is until a cost of at least 1 fits, if nothing else happens; 0 if
// it does. What exceeds the capacity is taken for that.
func (s Status) FitsIn(cost int64) time.Duration {
	period := s.Limit.period()
	inc, err := increment(min(cost, s.Limit.Capacity), s.Limit.Capacity, period)
	if err != nil {
		return 0
	}
	return wait(lasting(s.FullIn), 0, inc, period).duration()
}

// Abandoned is a call whose hold expired: its process died or could not reach
// the store.
type Abandoned struct {
	Key           string
	ID            string // the reservation's
	Start, Expiry time.Time
	Note          []byte
}

var (
	// ErrUnavailable: the store did not answer in time or refused. Nothing is
	// charged, or what is charged comes back when its hold expires.
	ErrUnavailable = errors.New("bucket: store unavailable")
	// ErrNotFound: the identity has no item.
	ErrNotFound = errors.New("bucket: no such identity")
)

// Options configure Buckets. Table and LongestPeriod are required.
type Options struct {
	// Table is the DynamoDB table: partition key "pk" (string), no sort key, TTL
	// attribute "expires".
	Table string
	// LongestPeriod is the longest period, or Life, of any limit that is kept in the
	// table; items live at least that long after their last reserve.
	LongestPeriod time.Duration
	// OnAbandoned is told of an expired hold before the hold is removed. If it
	// fails the hold stays, to be swept later. It may be told twice of the same
	// hold. Nil: nobody is told.
	OnAbandoned func(context.Context, Abandoned) error
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// AttemptTimeout bounds one send (default 1 s), ReserveTimeout all that
	// Reserve does (default 2.5 s, plus as long as AttemptTimeout for taking back
	// a reserve that nothing is known of), SettleTimeout all that Settle does
	// (default 5 s).
	AttemptTimeout, ReserveTimeout, SettleTimeout time.Duration
	// Remember is how many identities a process keeps in mind (default 10,000).
	Remember int
}

// Buckets is the buckets in one table. It is safe for concurrent use, and any
// number of processes may work on the same table.
type Buckets struct {
	db     DynamoDB
	opts   Options
	memory *memory
}

// New checks the options.
func New(db DynamoDB, opts Options) (*Buckets, error) {
	if opts.Table == "" {
		return nil, errors.New("bucket: Options.Table is empty")
	}
	if opts.LongestPeriod < time.Second {
		return nil, errors.New("bucket: Options.LongestPeriod is below a second")
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	setDefault(&opts.AttemptTimeout, time.Second)
	setDefault(&opts.ReserveTimeout, 2500*time.Millisecond)
	setDefault(&opts.SettleTimeout, 5*time.Second)
	setDefault(&opts.Remember, 10_000)
	return &Buckets{db: db, opts: opts, memory: newMemory(opts.Remember)}, nil
}

func setDefault[T int | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

func (b *Buckets) now() micros { return at(b.opts.Now()) }

// validName reports whether s may name a limit: 1 to 32 of a-z, 0-9, _ and -.
func validName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// Validate reports what is wrong with a limit.
func (l Limit) Validate() error {
	switch {
	case !validName(l.Name):
		return fmt.Errorf("bucket: limit name %q must be 1 to 32 of a-z, 0-9, _ and -", l.Name)
	case l.Capacity < 1:
		return fmt.Errorf("bucket: limit %s: capacity %d is below 1", l.Name, l.Capacity)
	case l.Period < time.Second || l.Period%time.Second != 0:
		return fmt.Errorf("bucket: limit %s: period %s must be whole seconds, at least 1", l.Name, l.Period)
	case l.Return > OnExpiry:
		return fmt.Errorf("bucket: limit %s: unknown return %d", l.Name, l.Return)
	}
	return nil
}

// status is the state of l for a TAT at now.
func (l Limit) status(tat, now micros) Status {
	s := Status{
		Limit:     l,
		Remaining: remaining(tat, now, l.Capacity, l.period()),
		FullIn:    max(0, tat-now).duration(),
	}
	if one, err := increment(1, l.Capacity, l.period()); err == nil {
		s.NextIn = wait(tat, now, one, l.period()).duration()
	}
	return s
}
