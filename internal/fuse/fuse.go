// Package fuse reads and sets the state by which calls are cut off when too much is
// being spent.
//
// Guarantees: a process asks the store at most once in freshFor, however many
// requests it serves, and those that wait share the answer. A state is obeyed at
// most freshFor late, counted from when it was asked for, also by a process that was
// frozen meanwhile. It ends by itself at its time. While the store cannot be read the
// last known state holds; if it was never read there is none, only an error. What an
// operator set is never overridden by the alarm.
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
}

// at is the setting that holds at now.
func (s Setting) at(now time.Time) Setting {
	if !s.Until.IsZero() && !now.Before(s.Until) {
		return Setting{State: Closed}
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
	last    Setting
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
func (r *Reader) Fresh() (Setting, bool) {
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
func (r *Reader) Begin(ctx context.Context) (wait func() (Setting, error)) {
	if last, ok := r.Fresh(); ok {
		return func() (Setting, error) { return last, nil }
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// A read that began before a freeze says what was then: it is not waited for.
	if r.reading == nil || !fresh(r.now(), r.reading.begun) {
		r.reading = &reading{begun: r.now(), ended: make(chan struct{})}
		go r.refresh(context.WithoutCancel(ctx), r.reading)
	}
	reading := r.reading
	return func() (Setting, error) {
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
			return Setting{}, r.err
		}
		return r.last.at(r.now()), nil
	}
}

func (r *Reader) refresh(ctx context.Context, this *reading) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	setting, err := get(ctx, r.db, r.table)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(this.ended)
	if r.reading != this {
		return // a later one has begun, and knows better
	}
	r.reading = nil
	if r.err = err; err == nil {
		r.last, r.asked = setting, this.begun
	}
}

func get(ctx context.Context, db DynamoDB, table string) (Setting, error) {
	out, err := db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &table,
		Key:            dynamo.Key(keys.Fuse),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return Setting{}, fmt.Errorf("reading the fuse: %w", err)
	}
	return decode(out.Item)
}

// decode reads the fuse's item; there is none until somebody sets it.
func decode(item dynamo.Item) (Setting, error) {
	if item == nil {
		return Setting{State: Closed}, nil
	}
	s := Setting{State: State(dynamo.TextOf(item, "state")), SetBy: dynamo.TextOf(item, "set_by")}
	if !s.State.Valid() {
		return Setting{}, errors.New("the fuse's item has no valid state")
	}
	if item["until"] != nil {
		until, ok := dynamo.NumberOf(item, "until")
		if !ok {
			return Setting{}, errors.New("the fuse's item has no valid until")
		}
		s.Until = time.Unix(until, 0)
	}
	return s, nil
}
