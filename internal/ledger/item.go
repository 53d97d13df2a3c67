package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

type item = map[string]types.AttributeValue

// Attributes of a spend event.
const (
	attrTime     = "time" // microseconds since 1970
	attrIdentity = "identity"
	attrCost     = "pico_dollars"
	attrCall     = "call"    // JSON of a call
	attrExpires  = "expires" // seconds since 1970
)

// call is the rest of an event, in one attribute: to take apart one each was most of
// the work of a sum, for the store and for us. It is named as in the log; what is
// empty or 0 is left out.
type call struct {
	Tier        string  `json:"tier,omitempty"`
	Feature     string  `json:"feature,omitempty"`
	Model       string  `json:"model,omitempty"`
	Input       int64   `json:"input,omitempty"`
	CachedInput int64   `json:"cached_input,omitempty"`
	CacheWrite  int64   `json:"cache_write,omitempty"`
	Output      int64   `json:"output,omitempty"`
	Reasoning   int64   `json:"reasoning,omitempty"`
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
	call, err := json.Marshal(call{Tier: e.Tier, Feature: e.Feature, Model: e.Model,
		Input: u.Input, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning,
		Outcome: e.Outcome, Estimated: e.Estimated})
	if err != nil {
		return nil, err
	}
	it := keyOf(p.key(), e.Reservation)
	it[attrTime] = number(e.Time.UnixMicro())
	it[attrIdentity] = text(e.Identity)
	it[attrCost] = number(int64(e.Cost))
	it[attrCall] = text(string(call))
	it[attrExpires] = expiry(e.Time.UnixMicro())
	return it, nil
}

// spend is what a sum needs of an event.
type spend struct {
	time                           int64
	identity, tier, feature, model string
	amount                         Amount
}

func decodeSpend(it item) (spend, error) {
	at, err := numberOf(it, attrTime)
	if err != nil {
		return spend{}, err
	}
	cost, err := numberOf(it, attrCost)
	if err != nil {
		return spend{}, err
	}
	c, err := decodeCall(it)
	if err != nil {
		return spend{}, err
	}
	s := spend{time: at, identity: textOf(it, attrIdentity), tier: c.Tier, feature: c.Feature, model: c.Model,
		amount: Amount{Calls: 1, Cost: price.Pico(cost)}}
	if c.Outcome == Abandoned {
		s.amount.Abandoned, s.amount.AbandonedCost = 1, s.amount.Cost
	}
	if c.Estimated {
		s.amount.Estimated = 1
	}
	return s, nil
}

func decodeCall(it item) (call, error) {
	var c call
	if err := json.Unmarshal([]byte(textOf(it, attrCall)), &c); err != nil {
		return c, errors.New("an event without a valid " + attrCall)
	}
	return c, nil
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
