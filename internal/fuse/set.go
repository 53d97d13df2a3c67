package fuse

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
)

// WriterDB is the part of *dynamodb.Client that a Writer uses.
type WriterDB interface {
	DynamoDB
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// writeTimeout bounds a write, with the client's own retries.
const writeTimeout = 5 * time.Second

// Writer sets the fuse and blocks identities. Whatever a method writes may be written
// again: a reply that got lost is made good by asking again. It is safe for concurrent
// use, and so are any number of Writers.
//
// The item has the attributes state, set_by, set_at, why and, unless the state has no
// end, until; both times in unix seconds. The attribute blocks is a map by identity key, of
// maps of until and set_by. All writes are updates of what they are about, so that each
// keeps what the others have written. An item that was made by a block has the state
// closed and neither set_by nor set_at: as if the state was never set.
type Writer struct {
	db    WriterDB
	table string
	now   func() time.Time
}

// NewWriter makes a Writer of the fuse in a table.
func NewWriter(db WriterDB, table string, now func() time.Time) *Writer {
	return &Writer{db: db, table: table, now: now}
}

// Current is the fuse as it holds now, read from the store. Some of the blocks may have
// ended.
func (w *Writer) Current(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s, err := get(ctx, w.db, w.table)
	return s.at(w.now()), err
}

// Set sets the fuse, whatever it is: for operators. SetBy must not be empty.
func (w *Writer) Set(ctx context.Context, s Setting) error {
	_, err := w.update(ctx, s, nil)
	return err
}

// SetIfFree sets the fuse unless somebody else decided otherwise: for the alarm. It
// applies if the fuse was never set, if s.SetBy set it last, or if another's setting
// has ended or is closed since before the incident began. So an operator who closes
// the fuse during an incident, or for a time that still runs, keeps it closed. A
// fuse that s.SetBy itself released after decided, when the caller knew of the
// incident, stays closed too: the incident was over by then.
func (w *Writer) SetIfFree(ctx context.Context, s Setting, incident, decided time.Time) (applied bool, err error) {
	return w.update(ctx, s, func(in *dynamodb.UpdateItemInput) {
		in.ConditionExpression = aws.String("attribute_not_exists(pk) OR " +
			"(#by = :by AND (#state <> :closed OR attribute_not_exists(#at) OR #at <= :decided)) OR #until <= :now OR " +
			"(#state = :closed AND attribute_not_exists(#until) AND (attribute_not_exists(#at) OR #at < :incident))")
		in.ExpressionAttributeValues[":closed"], in.ExpressionAttributeValues[":incident"] = dynamo.Text(string(Closed)), dynamo.Seconds(incident)
		in.ExpressionAttributeValues[":decided"] = dynamo.Seconds(decided)
	})
}

// Release closes the fuse if by set it last; else it does nothing.
func (w *Writer) Release(ctx context.Context, by string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := w.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                &w.table,
		Key:                      dynamo.Key(keys.Fuse),
		UpdateExpression:         aws.String("SET #state = :closed, #at = :now REMOVE #until, #why"),
		ConditionExpression:      aws.String("#by = :by"),
		ExpressionAttributeNames: map[string]string{"#by": "set_by", "#until": "until", "#state": "state", "#at": "set_at", "#why": "why"},
		ExpressionAttributeValues: dynamo.Item{
			":by": dynamo.Text(by), ":closed": dynamo.Text(string(Closed)), ":now": dynamo.Seconds(w.now())},
	})
	if _, refused := dynamo.ConditionFailed(err); err != nil && !refused {
		return fmt.Errorf("releasing the fuse: %w", err)
	}
	return nil
}

func (w *Writer) update(ctx context.Context, s Setting, condition func(*dynamodb.UpdateItemInput)) (applied bool, err error) {
	if !s.State.Valid() || s.SetBy == "" {
		return false, fmt.Errorf("the fuse cannot be set to %q by %q", s.State, s.SetBy)
	}
	in := &dynamodb.UpdateItemInput{
		TableName: &w.table, Key: dynamo.Key(keys.Fuse),
		ExpressionAttributeNames: map[string]string{"#by": "set_by", "#until": "until", "#state": "state", "#at": "set_at", "#why": "why"},
		ExpressionAttributeValues: dynamo.Item{
			":state": dynamo.Text(string(s.State)), ":by": dynamo.Text(s.SetBy), ":now": dynamo.Seconds(w.now()), ":why": dynamo.Text(s.Why)},
	}
	update := "SET #state = :state, #by = :by, #at = :now, #why = :why"
	if s.Until.IsZero() {
		update += " REMOVE #until"
	} else {
		update += ", #until = :until"
		in.ExpressionAttributeValues[":until"] = dynamo.Seconds(s.Until)
	}
	in.UpdateExpression = &update
	if condition != nil {
		condition(in)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = w.db.UpdateItem(ctx, in)
	if _, refused := dynamo.ConditionFailed(err); refused {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("setting the fuse: %w", err)
	}
	return true, nil
}
