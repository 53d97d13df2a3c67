package ledger

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// DynamoDB is the part of *dynamodb.Client that the package uses.
type DynamoDB interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// LongestCall is the longest time from a reservation to the end of its settle,
// whatever the configuration: a call that began under a longer timeout, or in a
// process that was deployed before or after this one, must not be missed. So it is
// not an option, which two processes could have differently.
const LongestCall = 15*time.Minute + 10*time.Second

// Grace is how long after LongestCall a minute stays open: room for clocks that
// differ and for writes on their way.
const Grace = time.Minute

// Retention is how long events and roll-ups are kept.
const Retention = 40 * 24 * time.Hour

const defaultShards = 4

// Options configure a Ledger. Table is required.
type Options struct {
	// Table is the DynamoDB table: partition key "pk" and sort key "sk" (strings),
	// TTL attribute "expires".
	Table string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Shards is the number of partitions of a minute, 1 to 100; 0: 4. A partition
	// takes about 1,000 events a second. All processes must have the same number: it
	// may grow, in those that sum first, and must not shrink.
	Shards int
	// AttemptTimeout bounds a write, the SDK's own retries included, so that one that
	// hangs leaves time for another; 0: 1 s.
	AttemptTimeout time.Duration
	// ReadOnly sums without making roll-ups: another process does, and this one may not.
	ReadOnly bool
	// Log is told of roll-ups that could not be written: the next sum tries again.
	// Nil: slog.Default().
	Log *slog.Logger
}

// Ledger is the spend events in one table. It is safe for concurrent use, and any
// number of processes may work on the same table.
type Ledger struct {
	db   DynamoDB
	opts Options

	mu     sync.Mutex
	marked map[hour]bool // hours that this process knows to have an item
}

// New checks the options.
func New(db DynamoDB, opts Options) (*Ledger, error) {
	if opts.Table == "" {
		return nil, errors.New("ledger: Options.Table is empty")
	}
	if opts.Shards == 0 {
		opts.Shards = defaultShards
	}
	if opts.Shards < 1 || opts.Shards > 100 {
		return nil, errors.New("ledger: Options.Shards is not between 1 and 100")
	}
	if opts.AttemptTimeout <= 0 {
		opts.AttemptTimeout = time.Second
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &Ledger{db: db, opts: opts, marked: map[hour]bool{}}, nil
}

// settled is a time before which, by this process's clock, every call has settled:
// minutes and hours that ended by then can be closed.
func (l *Ledger) settled() int64 {
	return l.opts.Now().Add(-LongestCall - Grace).UnixMicro()
}
