package bucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// update is a conditional UpdateItem under construction.
type update struct {
	set, remove, cond []string
	names             map[string]string
	values            map[string]types.AttributeValue
}

func newUpdate() *update {
	return &update{
		names:  make(map[string]string, 16),
		values: make(map[string]types.AttributeValue, 16),
	}
}

// name, number and binary give the placeholder of an attribute or a value.

func (u *update) name(attr string) string {
	p := "#" + strconv.Itoa(len(u.names))
	u.names[p] = attr
	return p
}

func (u *update) number(n int64) string {
	return u.value(&types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)})
}

func (u *update) binary(b []byte) string { return u.value(&types.AttributeValueMemberB{Value: b}) }

func (u *update) value(v types.AttributeValue) string {
	p := ":" + strconv.Itoa(len(u.values))
	u.values[p] = v
	return p
}

func (u *update) setTo(expr ...string)   { u.set = append(u.set, strings.Join(expr, "")) }
func (u *update) removeAttr(name string) { u.remove = append(u.remove, name) }
func (u *update) require(expr ...string) { u.cond = append(u.cond, strings.Join(expr, "")) }
func (u *update) expression() *string    { return aws.String(u.sections()) }
func (u *update) conditionExpr() *string { return aws.String(strings.Join(u.cond, " AND ")) }
func (u *update) section(verb string, parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return verb + strings.Join(parts, ", ")
}

func (u *update) sections() string {
	return u.section("SET ", u.set) + u.section(" REMOVE ", u.remove)
}

// leaves takes a call out of the counts of open ones.
func (u *update) leaves(client string) {
	one := u.number(1)
	o := u.name(attrOpen)
	u.setTo(o, " = ", o, " - ", one)
	if client != "" {
		o := u.name(openAttr(client))
		u.setTo(o, " = ", o, " - ", one)
	}
}

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
		UpdateExpression:                    u.expression(),
		ConditionExpression:                 u.conditionExpr(),
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
