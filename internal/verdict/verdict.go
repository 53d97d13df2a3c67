// Package verdict is what spendalarm compared with when it ran last. It stands in the
// alarm's item, for whoever shows how things are. Nothing is decided by it.
package verdict

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// Verdict is above what spending is abnormal.
type Verdict struct {
	Threshold price.Pico // 0: not known
	From      string     // how it came about, for a person
	Peak      price.Pico // the highest normal hour; 0: not known, or nothing was spent
}

// Put writes v into the alarm's item: the attributes threshold, from and peak.
func (v Verdict) Put(it dynamo.Item) {
	if v.Threshold > 0 {
		it["threshold"], it["from"] = dynamo.Number(int64(v.Threshold)), dynamo.Text(v.From)
	}
	if v.Peak > 0 {
		it["peak"] = dynamo.Number(int64(v.Peak))
	}
}

// Of reads v from the alarm's item. What is not readable is not known.
func Of(it dynamo.Item) Verdict {
	threshold, _ := dynamo.NumberOf(it, "threshold")
	peak, _ := dynamo.NumberOf(it, "peak")
	return Verdict{price.Pico(max(0, threshold)), dynamo.TextOf(it, "from"), price.Pico(max(0, peak))}
}

// Alarm is how the alarm stands.
type Alarm struct {
	Verdict
	Seen  time.Time // up to when spendalarm has seen; zero: it never ran, or has nothing to compare with
	Since time.Time // when the incident was first seen; zero: there is none
}

// DynamoDB is the part of *dynamodb.Client that Read uses.
type DynamoDB interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Read reads the alarm's item.
func Read(ctx context.Context, db DynamoDB, table string) (Alarm, error) {
	out, err := db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: dynamo.Key(keys.Alarm), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return Alarm{}, fmt.Errorf("reading the alarm's state: %w", err)
	}
	a := Alarm{Verdict: Of(out.Item)}
	if seen, ok := dynamo.NumberOf(out.Item, "seen"); ok {
		a.Seen = time.UnixMicro(seen).UTC()
	}
	if since, ok := dynamo.NumberOf(out.Item, "since"); ok {
		a.Since = time.Unix(since, 0).UTC()
	}
	return a, nil
}
