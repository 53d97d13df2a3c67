package ledger

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type item = map[string]types.AttributeValue

// Attributes of a spend event beside its key.
const (
	attrEvent   = "event"   // the line of a record
	attrExpires = "expires" // seconds since 1970
)

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// keyOf is a primary key.
func keyOf(pk, sk string) item { return item{attrPartition: text(pk), attrSort: text(sk)} }

// expiry is the TTL of what belongs to a time.
func expiry(micros int64) types.AttributeValue {
	return number(time.UnixMicro(micros).Add(Retention).Unix())
}

// item is e as it is kept.
func (e Event) item(p partition) (item, error) {
	line, err := e.record().line()
	if err != nil {
		return nil, err
	}
	it := keyOf(p.key(), e.Reservation)
	it[attrEvent] = text(line)
	it[attrExpires] = expiry(e.Time.UnixMicro())
	return it, nil
}

func textOf(it item, name string) string {
	if s, ok := it[name].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

// numberOf reads a number that is not negative; all in this table are such.
func numberOf(it item, name string) (int64, error) {
	if n, ok := it[name].(*types.AttributeValueMemberN); ok {
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil && i >= 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("an item without a valid %s", name)
}
