package bucket

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// clearCredits times the period is what a clear adds to a limit's credits: more
// than any open reservation's fence allows, so that a settle of one that was made
// before the clear gives nothing back into the new state.
const clearCredits = 16

// State is an identity's item at a moment.
type State struct {
	Exists bool
	// Holds are the open calls, oldest first.
	Holds []Hold
	// InFlight is the number of open calls that count against MaxInFlight.
	InFlight int

	tats map[string]int64
	now  int64
}

// Hold is an open call of an identity.
type Hold struct {
	ID            string
	Start, Expiry time.Time
	Note          []byte
}

// Limit is the state of one limit.
func (s State) Limit(l Limit) Status { return l.status(s.tats[tatAttr("", l.Name, l.period())], s.now) }

// Peek reads an identity's state, consistently. An identity without an item has
// all its limits full.
func (b *Buckets) Peek(ctx context.Context, key string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.ReserveTimeout)
	defer cancel()
	out, err := b.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &b.opts.Table,
		Key:            map[string]types.AttributeValue{attrKey: &types.AttributeValueMemberS{Value: key}},
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return b.state(out.Item)
}

func (b *Buckets) state(it item) (State, error) {
	s := State{Exists: it != nil, tats: make(map[string]int64), now: b.now()}
	for attr := range it {
		if !strings.HasPrefix(attr, tatPrefix) {
			continue
		}
		tat, err := it.number(attr)
		if err != nil {
			return State{}, err
		}
		s.tats[attr] = tat
	}
	open, err := it.number(attrOpen)
	if err != nil {
		return State{}, err
	}
	s.InFlight = int(open)
	for h := range it.holds() {
		if !h.dead {
			s.Holds = append(s.Holds, Hold{ID: h.id, Start: time.UnixMicro(h.start), Expiry: time.UnixMicro(h.expiry), Note: h.note})
		}
	}
	slices.SortFunc(s.Holds, func(a, b Hold) int { return a.Start.Compare(b.Start) })
	return s, nil
}

// Clear makes limits of an identity full. Open calls stay open and settle as
// ever, but give nothing back to what was cleared. ErrNotFound if there is no such
// identity: none is made. Processes that remember a denial may repeat it for up to
// a second.
func (b *Buckets) Clear(ctx context.Context, key string, limits ...Limit) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.ReserveTimeout)
	defer cancel()
	u := newUpdate()
	zero, now := u.number(0), u.number(b.now())
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			return err
		}
		u.setTo(u.name(tatAttr("", l.Name, l.period())), " = ", zero)
		if l.Return != Never {
			g := u.name(creditsAttr("", l.Name, l.period()))
			u.setTo(g, " = if_not_exists(", g, ", ", zero, ") + ", u.number(clearCredits*l.period()))
		}
		u.setTo(u.name(clearedAttr(l.Name)), " = ", now)
	}
	if len(limits) == 0 {
		return nil
	}
	u.require("attribute_exists(", u.name(attrKey), ")")
	w, err := b.write(ctx, key, u)
	if err != nil {
		return err
	}
	if !w.applied {
		return ErrNotFound
	}
	b.memory.put(key, w.item, 0)
	return nil
}
