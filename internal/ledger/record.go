package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
)

const (
	// attempts is how often a write is sent that gets no answer.
	attempts = 5
	// remembered is how many hours a process knows to be marked.
	remembered = 100
)

// Record keeps what a call cost, over what was assumed of it if it was thought to
// be abandoned. ctx bounds it. It may be repeated, and repeats itself what gets no
// answer; after an error the event may have been recorded all the same.
func (l *Ledger) Record(ctx context.Context, e Event) error {
	if err := e.validate(); err != nil {
		return err
	}
	if e.Outcome == Abandoned {
		return errors.New("ledger: Record is not for abandoned calls")
	}
	p := l.partitionOf(e)
	if err := l.mark(ctx, p.minute.hour()); err != nil {
		return fmt.Errorf("ledger: marking the hour: %w", err)
	}
	it, err := e.item(p)
	if err != nil {
		return err
	}
	if err := l.put(ctx, &dynamodb.PutItemInput{Item: it}); err != nil {
		return fmt.Errorf("ledger: recording: %w", err)
	}
	if p.minute.end() > l.opts.Now().Add(-LongestCall).UnixMicro() {
		return nil
	}
	// Later than promised: its minute may be closed.
	return l.reopen(ctx, p)
}

// RecordAbandoned keeps what is assumed of a call whose process died, unless it is
// recorded already. It may be repeated, and must be after an error: the event may
// be missing from roll-ups until then.
func (l *Ledger) RecordAbandoned(ctx context.Context, e Event) error {
	if err := e.validate(); err != nil {
		return err
	}
	if e.Outcome != Abandoned {
		return errors.New("ledger: RecordAbandoned is for abandoned calls")
	}
	p := l.partitionOf(e)
	it, err := e.item(p)
	if err != nil {
		return err
	}
	err = l.put(ctx, &dynamodb.PutItemInput{
		Item:                                it,
		ConditionExpression:                 aws.String("attribute_not_exists(" + dynamo.Partition + ")"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	switch found, exists := dynamo.ConditionFailed(err); {
	case exists:
		// An earlier attempt, or a settle that came later than promised, has put the
		// event and may not have come further than that.
		if _, err := recordOf(found); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("ledger: recording an abandoned call: %w", err)
	}
	return l.reopen(ctx, p)
}

// reopen takes back the roll-ups that an event belongs to, which is in the table
// already. The hour comes last: it is made of the others, and if it were taken back
// first it could be made again of one that is not yet.
func (l *Ledger) reopen(ctx context.Context, p partition) error {
	h := p.minute.hour()
	for _, roll := range []struct {
		key item
		of  int64
	}{{keyOf(h.rollUpsKey(), p.rollUpSort()), p.minute.start()}, {keyOf(h.key(), h.sort()), h.start()}} {
		err := l.update(ctx, &dynamodb.UpdateItemInput{
			Key:              roll.key,
			UpdateExpression: aws.String("ADD " + attrLate + " :one SET " + dynamo.Expires + " = :e REMOVE " + attrSums),
			// Repeated, it counts twice, which does no harm.
			ExpressionAttributeValues: item{":one": dynamo.Number(1), ":e": expiry(roll.of)},
		})
		if err != nil {
			return fmt.Errorf("ledger: taking back a roll-up: %w", err)
		}
	}
	return nil
}

// mark makes sure that an hour has an item, so that its events are looked for.
func (l *Ledger) mark(ctx context.Context, h hour) error {
	l.mu.Lock()
	known := l.marked[h]
	l.mu.Unlock()
	if known {
		return nil
	}
	err := l.update(ctx, &dynamodb.UpdateItemInput{
		Key:                       keyOf(h.key(), h.sort()),
		UpdateExpression:          aws.String("SET " + dynamo.Expires + " = :e"),
		ExpressionAttributeValues: item{":e": expiry(h.start())},
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.marked) >= remembered {
		clear(l.marked)
	}
	l.marked[h] = true
	return nil
}

func (l *Ledger) put(ctx context.Context, in *dynamodb.PutItemInput) error {
	in.TableName = &l.opts.Table
	return l.repeat(ctx, func(ctx context.Context) error {
		_, err := l.db.PutItem(ctx, in)
		return err
	})
}

func (l *Ledger) update(ctx context.Context, in *dynamodb.UpdateItemInput) error {
	in.TableName = &l.opts.Table
	return l.repeat(ctx, func(ctx context.Context) error {
		_, err := l.db.UpdateItem(ctx, in)
		return err
	})
}

// repeat sends again what had no answer, or none in time. All writes of this package
// may be sent any number of times. Other failures the SDK has retried already.
func (l *Ledger) repeat(ctx context.Context, send func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, l.opts.AttemptTimeout)
			defer cancel()
			return send(ctx)
		}()
		var answer smithy.APIError
		if err == nil || errors.As(err, &answer) || ctx.Err() != nil || attempt == attempts {
			return err
		}
	}
}
