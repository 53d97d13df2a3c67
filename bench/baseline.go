package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
)

// baseline is the token bucket as it is usually written, in the two usual ways to
// keep it in a store: read the bucket, refill it by the time that has passed, and
// write it back. It keeps one limit and settles nothing.
type baseline struct {
	db       *dynamodb.Client
	table    string
	capacity float64
	rate     float64 // per second
}

// errContended: other writers were always faster.
var errContended = errors.New("no write took effect")

// maxSwaps is how often compareAndSwap tries.
const maxSwaps = 50

// readThenWrite takes tokens without looking whether the bucket has changed
// since it was read.
func (b *baseline) readThenWrite(ctx context.Context, key string, tokens float64) (admitted bool, err error) {
	s, err := b.read(ctx, key)
	if err != nil || s.tokens < tokens {
		return false, err
	}
	return true, b.write(ctx, key, s, tokens, false)
}

// compareAndSwap takes tokens if the bucket has not changed since it was read,
// and starts again if it has.
func (b *baseline) compareAndSwap(ctx context.Context, key string, tokens float64) (admitted bool, err error) {
	for range maxSwaps {
		s, err := b.read(ctx, key)
		if err != nil || s.tokens < tokens {
			return false, err
		}
		err = b.write(ctx, key, s, tokens, true)
		if _, changed := dynamo.ConditionFailed(err); !changed {
			return err == nil, err
		}
	}
	return false, errContended
}

// state is a bucket as it was read and refilled.
type state struct {
	tokens  float64
	refill  int64 // when that was, ms
	version int64 // 0: there is no item yet
}

func (b *baseline) read(ctx context.Context, key string) (state, error) {
	out, err := b.db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &b.table, ConsistentRead: aws.Bool(true),
		Key: dynamo.Key(key)})
	if err != nil {
		return state{}, err
	}
	now := time.Now().UnixMilli()
	if out.Item == nil {
		return state{tokens: b.capacity, refill: now}, nil
	}
	tokens, last, version := number(out.Item["tokens"]), number(out.Item["refill"]), number(out.Item["version"])
	elapsed := (float64(now) - last) / 1000
	return state{min(b.capacity, tokens+elapsed*b.rate), now, int64(version)}, nil
}

func (b *baseline) write(ctx context.Context, key string, s state, tokens float64, ifUnchanged bool) error {
	in := &dynamodb.PutItemInput{TableName: &b.table, Item: dynamo.Item{
		"pk":      dynamo.Text(key),
		"tokens":  &types.AttributeValueMemberN{Value: strconv.FormatFloat(s.tokens-tokens, 'f', 3, 64)},
		"refill":  dynamo.Number(s.refill),
		"version": dynamo.Number(s.version + 1),
	}}
	switch {
	case !ifUnchanged:
	case s.version == 0:
		in.ConditionExpression = aws.String("attribute_not_exists(pk)")
	default:
		in.ConditionExpression = aws.String("version = :read")
		in.ExpressionAttributeValues = dynamo.Item{":read": dynamo.Number(s.version)}
	}
	_, err := b.db.PutItem(ctx, in)
	return err
}

func number(v types.AttributeValue) float64 {
	if n, ok := v.(*types.AttributeValueMemberN); ok {
		f, _ := strconv.ParseFloat(n.Value, 64)
		return f
	}
	return 0
}
