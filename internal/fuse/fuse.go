// Package fuse reads and sets the state by which calls are cut off when too much is
// being spent, and the short list of identities that are blocked. Both are in one item.
//
// Guarantees: a process asks the store at most once in freshFor, however many
// requests it serves, and those that wait share the answer. A state is obeyed at
// most freshFor late, counted from when it was asked for, also by a process that was
// frozen meanwhile. It ends by itself at its time. While the store cannot be read the
// last known state holds; if it was never read there is none, only an error. What an
// operator set is never overridden by the alarm. Who sets the state keeps the blocks, and
// who changes a block keeps the state and the other blocks. There are MaxBlocks at most.
package fuse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/clock"
	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
)

// State says what is cut off.
type State string

const (
	Closed       State = "closed"        // nothing
	Challenge    State = "challenge"     // anonymous callers without a solved challenge
	AnonymousOff State = "anonymous_off" // anonymous callers
	Open         State = "open"          // everybody
)

// Valid reports whether s is a state.
func (s State) Valid() bool {
	switch s {
	case Closed, Challenge, AnonymousOff, Open:
		return true
	}
	return false
}

// Setting is a state as somebody set it.
type Setting struct {
	State State
	Until time.Time // when it ends by itself; zero: never
	SetBy string
	Why   string // "": nobody said
}

// Status is all of the fuse: what is cut off, and who.
type Status struct {
	Setting
	Blocks Blocks // not to be changed
}

// at is the status with the setting that holds at now.
func (s Status) at(now time.Time) Status {
	if !s.Until.IsZero() && !now.Before(s.Until) {
		s.Setting = Setting{State: Closed}
	}
	return s
}

// DynamoDB is the part of *dynamodb.Client that a Reader uses.
type DynamoDB interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

const (

	// freshFor is how long a state is obeyed without asking again.
	freshFor = 3 * time.Second
	// readTimeout bounds a read.
	readTimeout = 2 * time.Second
)

// Reader reads the fuse. It is safe for concurrent use.
type Reader struct {
	db    DynamoDB
	table string
	now   func() time.Time

	mu      sync.Mutex
	last    Status
	asked   time.Time // when last was asked for; zero: it never was read
	reading *reading  // the one under way; nil: there is none
	err     error     // of the last reading
}

// reading is one read of the store.
type reading struct {
	begun time.Time
	ended chan struct{} // closed when it has
}

// NewReader makes a Reader of the fuse in a table.
func NewReader(db DynamoDB, table string, now func() time.Time) *Reader {
	return &Reader{db: db, table: table, now: now}
}

// Fresh gives the state if it was asked for a moment ago.
func (r *Reader) Fresh() (Status, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	return r.last.at(now), !r.asked.IsZero() && fresh(now, r.asked)
}

// fresh reports whether what was asked for at a time may still be obeyed. What was
// asked for may have changed since, however late the answer came.
func fresh(now, asked time.Time) bool {
	age := clock.Since(now, asked)
	return age >= 0 && age < freshFor
}

// Begin gives a function that waits for the state. If the known one is not fresh,
// a read has begun when Begin returns, so that the caller can do something else
// meanwhile. The wait ends with the read, after 2 s at most, whatever becomes of ctx.
//
// Whoever begins must wait, even if the state is of no use any more: Lambda may freeze
// the process after the answer, and a read that is then under way ends as an old one.
func (r *Reader) Begin(ctx context.Context) (wait func() (Status, error)) {
	if last, ok := r.Fresh(); ok {
		return func() (Status, error) { return last, nil }
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// A read that began before a freeze says what was then: it is not waited for.
	if r.reading == nil || !fresh(r.now(), r.reading.begun) {
		r.reading = &reading{begun: r.now(), ended: make(chan struct{})}
		go r.refresh(context.WithoutCancel(ctx), r.reading)
	}
	reading := r.reading
	return func() (Status, error) {
		<-reading.ended
		r.mu.Lock()
		defer r.mu.Unlock()
		for next := r.reading; next != nil && next.begun.After(reading.begun) && !fresh(r.now(), r.asked); next = r.reading {
			r.mu.Unlock()
			<-next.ended // it was begun because ours was too old
			r.mu.Lock()
			reading = next
		}
		if r.asked.IsZero() {
			return Status{}, r.err
		}
		return r.last.at(r.now()), nil
	}
}

func (r *Reader) refresh(ctx context.Context, this *reading) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	status, err := get(ctx, r.db, r.table)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(this.ended)
	if r.reading != this {
		return // a later one has begun, and knows better
	}
	r.reading = nil
	if r.err = err; err == nil {
		r.last, r.asked = status, this.begun
	}
}

func get(ctx context.Context, db DynamoDB, table string) (Status, error) {
	item, err := read(ctx, db, table)
	if err != nil {
		return Status{}, err
	}
	return decode(item)
}

// read reads the fuse's item; there is none until somebody sets it.
func read(ctx context.Context, db DynamoDB, table string) (dynamo.Item, error) {
	out, err := db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &table,
		Key:            dynamo.Key(keys.Fuse),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, fmt.Errorf("reading the fuse: %w", err)
	}
	return out.Item, nil
}

func decode(item dynamo.Item) (Status, error) {
	if item == nil {
		return Status{Setting: Setting{State: Closed}}, nil
	}
	s := Status{Setting: Setting{State: State(dynamo.TextOf(item, "state")), SetBy: dynamo.TextOf(item, "set_by"), Why: dynamo.TextOf(item, "why")}}
	if !s.State.Valid() {
		return Status{}, errors.New("the fuse's item has no valid state")
	}
	if item["until"] != nil {
		until, ok := dynamo.NumberOf(item, "until")
		if !ok {
			return Status{}, errors.New("the fuse's item has no valid until")
		}
		s.Until = time.Unix(until, 0)
	}
	var err error
	s.Blocks, err = decodeBlocks(item["blocks"])
	return s, err
}
