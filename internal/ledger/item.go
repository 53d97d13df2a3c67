package ledger

import (
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
)

type item = dynamo.Item

// attrEvent is the attribute of a spend event that has the line of its record.
const attrEvent = "event"

// attrProviderRequest is what the provider calls the request, if it is known. Nothing here
// reads it: it is for whoever looks a call up.
const attrProviderRequest = "provider_request"

// keyOf is a primary key.
func keyOf(pk, sk string) item {
	return item{dynamo.Partition: dynamo.Text(pk), dynamo.Sort: dynamo.Text(sk)}
}

// expiry is the TTL of what belongs to a time.
func expiry(micros int64) types.AttributeValue {
	return dynamo.Seconds(time.UnixMicro(micros).Add(Retention))
}

// item is e as it is kept.
func (e Event) item(p partition) (item, error) {
	line, err := e.record().line()
	if err != nil {
		return nil, err
	}
	it := keyOf(p.key(), e.Reservation)
	it[attrEvent] = dynamo.Text(line)
	it[dynamo.Expires] = expiry(e.Time.UnixMicro())
	if e.ProviderRequest != "" {
		it[attrProviderRequest] = dynamo.Text(e.ProviderRequest)
	}
	return it, nil
}

// numberOf reads a number that is not negative; all in this table are such.
func numberOf(it item, name string) (int64, error) {
	n, ok := dynamo.NumberOf(it, name)
	if !ok || n < 0 {
		return 0, fmt.Errorf("an item without a valid %s", name)
	}
	return n, nil
}
