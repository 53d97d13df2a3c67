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
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// writeTimeout bounds a write, with the client's own retries.
const writeTimeout = 5 * time.Second

// Writer sets the fuse. Each method is one write, or one read, that may be
// repeated: a reply that got lost is made good by asking again. It is safe for
// concurrent use.
//
// The item has the attributes state, set_by, set_at and, unless the state has no end,
// until; both times in unix seconds.
type Writer struct {
	db    WriterDB
	table string
	now   func() time.Time
}

// NewWriter makes a Writer of the fuse in a table.
func NewWriter(db WriterDB, table string, now func() time.Time) *Writer {
	return &Writer{db: db, table: table, now: now}
}

// Current is the setting that holds now, read from the store.
func (w *Writer) Current(ctx context.Context) (Setting, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s, err := get(ctx, w.db, w.table)
	return s.at(w.now()), err
}

// Set sets the fuse, whatever it is: for operators. SetBy must not be empty.
func (w *Writer) Set(ctx context.Context, s Setting) error {
	_, err := w.put(ctx, s, nil)
	return err
}

// SetIfFree sets the fuse unless somebody else decided otherwise: for the alarm. It
// applies if the fuse was never set, if s.SetBy set it last, or if another's setting
// has ended or is closed since before the incident began. So an operator who closes
// the fuse during an incident, or for a time that still runs, keeps it closed. A
// fuse that s.SetBy itself released after decided, when the caller knew of the
// incident, stays closed too: the incident was over by then.
func (w *Writer) SetIfFree(ctx context.Context, s Setting, incident, decided time.Time) (applied bool, err error) {
	return w.put(ctx, s, func(put *dynamodb.PutItemInput) {
		put.ConditionExpression = aws.String("attribute_not_exists(pk) OR " +
			"(#by = :by AND (#state <> :closed OR attribute_not_exists(#at) OR #at <= :decided)) OR #until <= :now OR " +
			"(#state = :closed AND attribute_not_exists(#until) AND (attribute_not_exists(#at) OR #at < :incident))")
		put.ExpressionAttributeNames = map[string]string{"#by": "set_by", "#until": "until", "#state": "state", "#at": "set_at"}
		put.ExpressionAttributeValues = dynamo.Item{
			":by": put.Item["set_by"], ":now": dynamo.Seconds(w.now()), ":closed": dynamo.Text(string(Closed)), ":incident": dynamo.Seconds(incident), ":decided": dynamo.Seconds(decided)}
	})
}

// Release closes the fuse if by set it last; else it does nothing.
func (w *Writer) Release(ctx context.Context, by string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := w.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                &w.table,
		Key:                      dynamo.Key(keys.Fuse),
		UpdateExpression:         aws.String("SET #state = :closed, #at = :now REMOVE #until"),
		ConditionExpression:      aws.String("#by = :by"),
		ExpressionAttributeNames: map[string]string{"#by": "set_by", "#until": "until", "#state": "state", "#at": "set_at"},
		ExpressionAttributeValues: dynamo.Item{
			":by": dynamo.Text(by), ":closed": dynamo.Text(string(Closed)), ":now": dynamo.Seconds(w.now())},
	})
	if _, refused := dynamo.ConditionFailed(err); err != nil && !refused {
		return fmt.Errorf("releasing the fuse: %w", err)
	}
	return nil
}

func (w *Writer) put(ctx context.Context, s Setting, condition func(*dynamodb.PutItemInput)) (applied bool, err error) {
	if !s.State.Valid() || s.SetBy == "" {
		return false, fmt.Errorf("the fuse cannot be set to %q by %q", s.State, s.SetBy)
	}
	in := &dynamodb.PutItemInput{TableName: &w.table, Item: dynamo.Item{
		dynamo.Partition: dynamo.Text(keys.Fuse), "state": dynamo.Text(string(s.State)), "set_by": dynamo.Text(s.SetBy), "set_at": dynamo.Seconds(w.now())}}
	if !s.Until.IsZero() {
		in.Item["until"] = dynamo.Seconds(s.Until)
	}
	if condition != nil {
		condition(in)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = w.db.PutItem(ctx, in)
	if _, refused := dynamo.ConditionFailed(err); refused {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("setting the fuse: %w", err)
	}
	return true, nil
}
