// Package dynamo is the small change of whatever is kept in DynamoDB: the attributes
// that the tables share, attribute values and back, and whether a condition failed.
package dynamo

import (
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Item is an item, a key, or the values of an expression.
type Item = map[string]types.AttributeValue

// The attributes that have the same meaning in all tables.
const (
	Partition = "pk"      // the partition key, a text
	Sort      = "sk"      // the sort key, a text, in tables that have one
	Expires   = "expires" // from then on DynamoDB may delete the item; a number of Unix seconds
)

// Key is the primary key of an item in a table without a sort key.
func Key(partition string) Item { return Item{Partition: Text(partition)} }

// Text is the value of a text.
func Text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// Number is the value of an integer.
func Number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// Seconds is the value of a time as a number of whole Unix seconds.
func Seconds(t time.Time) types.AttributeValue { return Number(t.Unix()) }

// TextOf reads an attribute. What is absent or no text reads as "".
func TextOf(it Item, name string) string {
	if s, ok := it[name].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

// NumberOf reads an attribute. It reports false for what is absent, no number, no
// integer, or beyond int64.
func NumberOf(it Item, name string) (int64, bool) {
	n, ok := it[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	return i, err == nil
}

// ConditionFailed reports whether a write failed because its condition did not hold.
// found is the item that did not meet it, if the write asked for that item and there is
// one.
func ConditionFailed(err error) (found Item, failed bool) {
	refused, failed := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !failed {
		return nil, false
	}
	return refused.Item, true
}
