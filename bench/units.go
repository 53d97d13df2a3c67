package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// writeUnits adds up the write units of a user's calls: one process, 4 limits, 8
// calls open at a time.
func writeUnits(ctx context.Context, l *lab) ([]table, error) {
	const open, rounds = 8, 50
	_, client, name, err := l.table(ctx, 0)
	if err != nil {
		return nil, err
	}
	db := &metered{Client: client}
	clock := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	b, err := l.buckets(db, name, func() time.Time { return clock })
	if err != nil {
		return nil, err
	}
	limits := l.userLimits(l.policy.Features["cv"])
	request := func(cost int64) bucket.Request {
		req := bucket.Request{Key: "user#auth0|5f7c8ec7c33c6c004bbafe82", MaxInFlight: open,
			Deadline: clock.Add(90 * time.Second), Note: make([]byte, 12)}
		for _, limit := range limits {
			c := bucket.Charge{Limit: limit, Cost: 1}
			if limit.Return == bucket.OnSettle {
				c.Cost = cost
			}
			req.Charges = append(req.Charges, c)
		}
		return req
	}

	largest, calls := 0, 0
	for range rounds {
		var reservations []*bucket.Reservation
		for range open {
			d, err := b.Reserve(ctx, request(2000))
			if err != nil {
				return nil, err
			}
			if d.Reservation == nil {
				return nil, fmt.Errorf("denied by %s", d.Denials[0].Limit.Name)
			}
			reservations = append(reservations, d.Reservation)
			clock = clock.Add(time.Second)
		}
		it, err := db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &name, ConsistentRead: aws.Bool(true),
			Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: request(1).Key}}})
		if err != nil {
			return nil, err
		}
		largest = max(largest, itemSize(it.Item))
		for _, r := range reservations {
			if err := r.Settle(ctx, []int64{1, 700, 500, 1}); err != nil {
				return nil, err
			}
			clock = clock.Add(time.Second)
			calls++
		}
		clock = clock.Add(24 * time.Hour)
	}
	perCall := db.take() / float64(calls)

	// Beyond the tokens that an open call leaves: the first denial asks the store,
	// the next are answered from memory.
	if _, err := b.Reserve(ctx, request(2000)); err != nil {
		return nil, err
	}
	db.take()
	denied := func() (float64, error) {
		d, err := b.Reserve(ctx, request(limits[1].Capacity))
		if err == nil && d.Reservation != nil {
			err = errors.New("admitted beyond the limit")
		}
		return db.take(), err
	}
	first, err := denied()
	if err != nil {
		return nil, err
	}
	repeated := 0.0
	for range 9 {
		clock = clock.Add(100 * time.Millisecond)
		units, err := denied()
		if err != nil {
			return nil, err
		}
		repeated += units
	}

	t := table{Title: "Write units as the store reports them, one process, 4 limits and 8 open calls", Columns: []column{{"figure", 2}}}
	t.add("largest item, bytes", float64(largest))
	t.expect(atMost, 1024)
	t.add(fmt.Sprintf("units per admitted call, of %d: reserve and settle", calls), perCall)
	t.expect(atMost, 2)
	t.add("units of a denial", first)
	t.expect(atMost, 1)
	t.add("units of 9 more within a second", repeated)
	t.expect(atMost, 0)
	return []table{t}, nil
}

// metered is a DynamoDB client that adds up write units.
type metered struct {
	*dynamodb.Client
	units float64
}

func (m *metered) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	metered := *in
	metered.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.UpdateItem(ctx, &metered, opts...)
	var failed *types.ConditionalCheckFailedException
	switch {
	case err == nil:
		m.units += aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
	case errors.As(err, &failed):
		// The report is missing from an error. DynamoDB charges by the size of the
		// item that stood in the way, at least one.
		m.units += float64(max(1, (itemSize(failed.Item)+1023)/1024))
	}
	return out, err
}

// take gives the units since the last take.
func (m *metered) take() float64 {
	units := m.units
	m.units = 0
	return units
}

// itemSize is the size of an item as DynamoDB counts it: names and values in
// bytes, a number as one byte and half a byte a digit.
func itemSize(item map[string]types.AttributeValue) int {
	size := 0
	for name, v := range item {
		size += len(name)
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += 1 + (len(v.Value)+1)/2
		}
	}
	return size
}
