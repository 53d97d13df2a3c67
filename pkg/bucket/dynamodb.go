package bucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// written is the answer to a conditional write.
type written struct {
	applied bool
	// item is as the write left it if it applied, else as it stood in the way
	// (nil: there was none).
	item item
	// unanswered: an earlier send of this write got no answer. It may have applied,
	// or may still.
	unanswered bool
}

// write sends an update until it is answered or ctx ends. It never returns with
// an error while what it sent is known to have applied. The SDK's own retries are
// off: an increment whose reply was lost would be sent, and counted, twice.
// Whether a repeated send is harmless is up to the update's condition.
func (b *Buckets) write(ctx context.Context, key string, u *update) (written, error) {
	var w written
	for attempt := 0; ; attempt++ {
		answered, err := b.send(ctx, key, u)
		if err == nil {
			answered.unanswered = w.unanswered
			return answered, nil
		}
		fate := fateOf(err)
		w.unanswered = w.unanswered || fate == unknown
		if fate == refused || !pause(ctx, attempt) {
			return w, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// send sends an update once.
func (b *Buckets) send(ctx context.Context, key string, u *update) (written, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.AttemptTimeout)
	defer cancel()
	out, err := b.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                           &b.opts.Table,
		Key:                                 map[string]types.AttributeValue{attrKey: &types.AttributeValueMemberS{Value: key}},
		UpdateExpression:                    aws.String(u.expression()),
		ConditionExpression:                 aws.String(u.condition()),
		ExpressionAttributeNames:            u.names,
		ExpressionAttributeValues:           u.values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}, noRetries)
	if err == nil {
		return written{applied: true, item: out.Attributes}, nil
	}
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		return written{item: failed.Item}, nil
	}
	return written{}, err
}

func noRetries(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// fate is what may have become of a send that failed.
type fate uint8

const (
	unknown    fate = iota // it may have applied, or may still
	notApplied             // it did not; sending it again may help
	refused                // it did not, and sending it again will not help
)

func fateOf(err error) fate {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return notApplied
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return unknown
	}
	switch api.ErrorCode() {
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "TransactionConflictException":
		return notApplied
	}
	var response *awshttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() >= 500 {
		return unknown
	}
	return refused
}

// pause waits before the next send; false means that ctx ends first.
func pause(ctx context.Context, attempt int) bool {
	const first, longest = 10 * time.Millisecond, 200 * time.Millisecond
	d := min(longest, first<<min(attempt, 10))
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
