package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
)

const (
	// auditKeep is how long an audit item is kept, by its TTL.
	auditKeep = 365 * 24 * time.Hour
	// auditTimeout bounds the writes of one, and the reading of a page.
	auditTimeout = 5 * time.Second
)

// AuditDB is the part of *dynamodb.Client that an Audit uses.
type AuditDB interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
}

// Audit keeps what administrators changed: an item of keys.Change with who,
// whom, what, why and when. It is written before the change, so a change that
// failed is in it, too.
//
// Changes have numbers, which the item keys.Audit counts. So the newest can be read
// without looking at the whole table. A number whose change could not be written, or
// whose reply got lost, stays without an item.
type Audit struct {
	db    AuditDB
	table string
	now   func() time.Time
}

// NewAudit makes an Audit in a table of the shape of Limits.
func NewAudit(db AuditDB, table string, now func() time.Time) *Audit {
	return &Audit{db, table, now}
}

// Change is something that an administrator changes.
type Change struct {
	Who  string // the caller's ARN
	Whom string // the identity's key, or fuse
	What string
	Why  string // as the caller gave it; may be empty
}

// Record keeps a change. Without it the change must not be made.
func (a *Audit) Record(ctx context.Context, c Change) error {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	now := a.now()
	counted, err := a.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: &a.table, Key: dynamo.Key(keys.Audit), UpdateExpression: aws.String("ADD n :one"),
		ExpressionAttributeValues: dynamo.Item{":one": dynamo.Number(1)}, ReturnValues: types.ReturnValueUpdatedNew})
	if err != nil {
		return fmt.Errorf("numbering the change: %w", err)
	}
	n, ok := dynamo.NumberOf(counted.Attributes, "n")
	if !ok {
		return errors.New("the number of changes is no integer")
	}
	_, err = a.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &a.table, Item: dynamo.Item{
		dynamo.Partition: dynamo.Text(keys.Change(n)),
		"at":             dynamo.Seconds(now),
		"who":            dynamo.Text(c.Who),
		"whom":           dynamo.Text(c.Whom),
		"what":           dynamo.Text(c.What),
		"why":            dynamo.Text(c.Why),
		dynamo.Expires:   dynamo.Seconds(now.Add(auditKeep)),
	}})
	if err != nil {
		return fmt.Errorf("writing the audit: %w", err)
	}
	return nil
}

const (
	// auditPage is the most changes in a page, auditLooked the most that are looked at
	// for it: who asks for those of one identity must not read a year of them.
	auditPage   = 50
	auditLooked = 500
	// auditBatch is the most items that DynamoDB gives at a time.
	auditBatch = 100
)

// asked says which changes are wanted.
type asked struct {
	whom   string    // "": of anybody
	since  time.Time // zero: however old
	before int64     // only those with a smaller number; 0: the newest, too
}

// recorded is a change as it was kept.
type recorded struct {
	N  int64
	At time.Time
	Change
}

// list gives a page of changes, the newest first, and the number before which the next
// page begins, 0 if there is none.
func (a *Audit) list(ctx context.Context, q asked) (page []recorded, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	count, err := a.db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &a.table, Key: dynamo.Key(keys.Audit), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, 0, fmt.Errorf("reading the number of changes: %w", err)
	}
	n, _ := dynamo.NumberOf(count.Item, "n")
	if q.before > 0 {
		n = min(n, q.before-1)
	}
	for looked := 0; n > 0; {
		batch, err := a.batch(ctx, n)
		if err != nil {
			return nil, 0, err
		}
		recent := slices.ContainsFunc(batch, func(r recorded) bool { return !r.At.Before(q.since) })
		if !recent {
			return page, 0, nil // all others are older still, or have expired
		}
		for _, r := range batch {
			if (q.whom == "" || r.Whom == q.whom) && !r.At.Before(q.since) {
				page = append(page, r)
			}
			if len(page) == auditPage && r.N > 1 {
				return page, r.N, nil
			}
		}
		n -= auditBatch
		if looked += auditBatch; looked >= auditLooked && n > 0 {
			return page, n + 1, nil
		}
	}
	return page, 0, nil
}

// batch reads the changes from a number down, the newest first.
func (a *Audit) batch(ctx context.Context, from int64) ([]recorded, error) {
	numbers := map[string]int64{}
	want := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	for n := from; n > 0 && n > from-auditBatch; n-- {
		numbers[keys.Change(n)] = n
		want.Keys = append(want.Keys, dynamo.Key(keys.Change(n)))
	}
	var batch []recorded
	for ask := map[string]types.KeysAndAttributes{a.table: want}; len(ask) > 0; { // what is too much at a time comes later
		out, err := a.db.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: ask})
		if err != nil {
			return nil, fmt.Errorf("reading the audit: %w", err)
		}
		for _, it := range out.Responses[a.table] {
			at, _ := dynamo.NumberOf(it, "at")
			batch = append(batch, recorded{numbers[dynamo.TextOf(it, dynamo.Partition)], time.Unix(at, 0),
				Change{Who: dynamo.TextOf(it, "who"), Whom: dynamo.TextOf(it, "whom"), What: dynamo.TextOf(it, "what"), Why: dynamo.TextOf(it, "why")}})
		}
		ask = out.UnprocessedKeys
	}
	slices.SortFunc(batch, func(x, y recorded) int { return int(y.N - x.N) })
	return batch, nil
}
