package main

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/local/engine"
)

// metered is a DynamoDB client that adds up the units that its calls take. It is safe for
// concurrent use.
type metered struct {
	*dynamodb.Client
	mu            sync.Mutex
	reads, writes float64
}

func (m *metered) Query(ctx context.Context, in *dynamodb.QueryInput, opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	reporting := *in
	reporting.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.Query(ctx, &reporting, opts...)
	if err == nil {
		m.add(&m.reads, *out.ConsumedCapacity.CapacityUnits)
	}
	return out, err
}

func (m *metered) PutItem(ctx context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	reporting := *in
	reporting.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.PutItem(ctx, &reporting, opts...)
	if err == nil {
		m.add(&m.writes, *out.ConsumedCapacity.CapacityUnits)
	}
	return out, err
}

func (m *metered) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	reporting := *in
	reporting.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.UpdateItem(ctx, &reporting, opts...)
	if err == nil {
		m.add(&m.writes, *out.ConsumedCapacity.CapacityUnits)
	} else if found, failed := dynamo.ConditionFailed(err); failed {
		// The report is missing from an error. DynamoDB charges by the size of the
		// item that stood in the way, at least one.
		m.add(&m.writes, float64(max(1, (engine.ItemSize(found)+1023)/1024)))
	}
	return out, err
}

func (m *metered) add(to *float64, units float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*to += units
}

// take gives the units since the last take.
func (m *metered) take() (reads, writes float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reads, writes = m.reads, m.writes
	m.reads, m.writes = 0, 0
	return reads, writes
}

// sizeOf is the size of a stored item, in bytes.
func (m *metered) sizeOf(ctx context.Context, table, key string) (int, error) {
	out, err := m.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, ConsistentRead: aws.Bool(true), Key: dynamo.Key(key)})
	if err != nil {
		return 0, err
	}
	return engine.ItemSize(out.Item), nil
}
