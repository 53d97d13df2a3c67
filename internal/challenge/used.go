package challenge

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
)

// remembered is how many used solutions a process keeps in mind.
const remembered = 10_000

const (
	claimTimeout   = 2 * time.Second // all attempts of a claim together
	claimAttempts  = 4
	attemptTimeout = claimTimeout / claimAttempts
)

// DynamoDB is what Used needs of a client of DynamoDB.
type DynamoDB interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Used remembers which solutions were used, each in an item of its own. The last of those that this process has seen used it also keeps in
// mind: to send them again costs nobody a write. It is safe for concurrent use.
type Used struct {
	db    DynamoDB
	table string
	now   func() time.Time
	seen  *lru.Cache[string, struct{}]
}

// NewUsed takes the name of the table.
func NewUsed(db DynamoDB, table string, now func() time.Time) *Used {
	seen, _ := lru.New[string, struct{}](remembered) // it fails for less than one
	return &Used{db, table, now, seen}
}

// Knows reports whether a solution is known to be used, without asking the store.
func (u *Used) Knows(s Solution) bool {
	_, known := u.seen.Get(s.ID)
	return known
}

// note remembers that a solution is used, by whomever.
func (u *Used) note(s Solution) { u.seen.Add(s.ID, struct{}{}) }

// Claim takes a solution, which succeeds once. ErrUsed: somebody else has it.
// ErrExpired: it is too late, its use would not be remembered. Or the error wraps
// ErrUnavailable: the store did not answer within 2 s; the solution is then
// either free or lost to all.
func (u *Used) Claim(ctx context.Context, s Solution) error {
	if !u.now().Before(s.Expires) {
		return ErrExpired
	}
	if u.Knows(s) {
		return ErrUsed
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	// The mark tells our own write, whose reply was lost, from another's, so that
	// sending it again is harmless. An expired item is not taken over: no id comes
	// twice.
	mark := dynamo.Text(rand.Text())
	put := &dynamodb.PutItemInput{
		TableName: &u.table,
		Item: dynamo.Item{
			dynamo.Partition: dynamo.Text(keys.Used.Key(s.ID)),
			"mark":           mark,
			dynamo.Expires:   dynamo.Number(s.Expires.Unix() + 1), // rounded up
		},
		ConditionExpression:       aws.String("attribute_not_exists(pk) OR #mark = :mine"),
		ExpressionAttributeNames:  map[string]string{"#mark": "mark"},
		ExpressionAttributeValues: dynamo.Item{":mine": mark},
	}
	var err error
	for attempt := range claimAttempts {
		if attempt > 0 && !sleep(ctx, 25*time.Millisecond<<attempt) {
			break
		}
		if err = u.put(ctx, put); err == nil {
			u.note(s)
			return nil
		}
		if _, taken := dynamo.ConditionFailed(err); taken {
			u.note(s)
			return ErrUsed
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// put sends once. The SDK would send again by itself, beyond our time.
func (u *Used) put(ctx context.Context, put *dynamodb.PutItemInput) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	_, err := u.db.PutItem(ctx, put, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	return err
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
