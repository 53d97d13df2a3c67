package bucket

import (
	"bytes"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// item is an identity's item as the store gave it; nil if there is none.
//
//	pk                     the identity
//	t_<limit>_<period, s>  TAT in µs. The period is in the name, so that a period
//	                       that was made shorter does not inherit a TAT far in the
//	                       future
//	g_<limit>_<period, s>  µs given back so far; only grows
//	cleared_<limit>        when the limit was last cleared, in µs; each clear is later
//	                       than the one before
//	o                      number of open holds
//	h_<id>                 a hold
//	expires                TTL, in s
type item map[string]types.AttributeValue

const (
	attrKey     = "pk"
	attrOpen    = "o"
	attrExpires = "expires"
	holdPrefix  = "h_"
	tatPrefix   = "t_"

	creditsPrefix = "g_"
	clearedPrefix = "cleared_"
)

func holdAttr(id string) string { return holdPrefix + id }

// slot is where a limit's state is in an item.
type slot struct {
	client string // whose limit it is; "": the identity's own
	name   string
	period micros
}

func (l Limit) of(client string) slot { return slot{client, l.Name, l.period()} }

// suffix tells the slot's attributes from those of others.
func (s slot) suffix() string {
	return scope(s.client) + s.name + "_" + strconv.FormatInt(int64(s.period/second), 10)
}

func (s slot) tat() string     { return tatPrefix + s.suffix() }
func (s slot) credits() string { return creditsPrefix + s.suffix() }
func (s slot) cleared() string { return clearedPrefix + scope(s.client) + s.name }

// micros reads a time in µs; absent is 0.
func (i item) micros(attr string) (micros, error) {
	n, err := i.number(attr)
	return micros(n), err
}

// number reads a number attribute; absent is 0. A value that is no int64 cannot
// come from this package: it is an error, not a guess.
func (i item) number(attr string) (int64, error) {
	v, ok := i[attr]
	if !ok {
		return 0, nil
	}
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0, fmt.Errorf("bucket: attribute %s is not a number", attr)
	}
	value, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bucket: attribute %s is not an integer", attr)
	}
	return value, nil
}

// holdBytes is the stored hold of a reservation, nil if there is none.
func (i item) holdBytes(id string) []byte {
	if v, ok := i[holdAttr(id)].(*types.AttributeValueMemberB); ok {
		return v.Value
	}
	return nil
}

func (i item) hasHold(id string, value []byte) bool { return bytes.Equal(i.holdBytes(id), value) }

// storedHold is a hold of an item with its id and its bytes.
type storedHold struct {
	hold
	id    string
	bytes []byte
}

// holds gives the item's readable holds. An unreadable one is left alone: it
// must be from a newer version, which will sweep it.
func (i item) holds() iter.Seq[storedHold] {
	return func(yield func(storedHold) bool) {
		for attr, v := range i {
			id, ok := strings.CutPrefix(attr, holdPrefix)
			if !ok {
				continue
			}
			value, ok := v.(*types.AttributeValueMemberB)
			if !ok {
				continue
			}
			h, err := decodeHold(value.Value)
			if err == nil && !yield(storedHold{h, id, value.Value}) {
				return
			}
		}
	}
}

// expired gives one hold that has expired at now.
func (i item) expired(now micros) (storedHold, bool) {
	for h := range i.holds() {
		if h.expiry < now {
			return h, true
		}
	}
	return storedHold{}, false
}
