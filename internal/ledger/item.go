package ledger

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

type item = map[string]types.AttributeValue

// Attributes of a spend event beside its key.
const (
	attrEvent   = "event"   // JSON of a record
	attrExpires = "expires" // seconds since 1970
)

// record is an event as it is kept, all in one attribute: to take apart many of them
// was most of the work of a sum, for the store and for us. It is named as in the log;
// what may be empty or 0 is left out then.
type record struct {
	Time        int64   `json:"time"` // microseconds since 1970
	Identity    string  `json:"identity"`
	Tier        string  `json:"tier,omitempty"`
	Feature     string  `json:"feature,omitempty"`
	Model       string  `json:"model,omitempty"`
	Input       int64   `json:"input,omitempty"`
	CachedInput int64   `json:"cached_input,omitempty"`
	CacheWrite  int64   `json:"cache_write,omitempty"`
	Output      int64   `json:"output,omitempty"`
	Reasoning   int64   `json:"reasoning,omitempty"`
	Cost        int64   `json:"pico_dollars"`
	Outcome     Outcome `json:"outcome"`
	Estimated   bool    `json:"estimated,omitempty"`
}

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
	u := e.Usage
	data, err := json.Marshal(record{Time: e.Time.UnixMicro(), Identity: e.Identity, Tier: e.Tier, Feature: e.Feature, Model: e.Model,
		Input: u.Input, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning,
		Cost: int64(e.Cost), Outcome: e.Outcome, Estimated: e.Estimated})
	if err != nil {
		return nil, err
	}
	it := keyOf(p.key(), e.Reservation)
	it[attrEvent] = text(string(data))
	it[attrExpires] = expiry(e.Time.UnixMicro())
	return it, nil
}

// amount is r by itself.
func (r record) amount() Amount {
	a := Amount{Calls: 1, Cost: price.Pico(r.Cost)}
	if r.Outcome == Abandoned {
		a.Abandoned, a.AbandonedCost = 1, a.Cost
	}
	if r.Estimated {
		a.Estimated = 1
	}
	return a
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
