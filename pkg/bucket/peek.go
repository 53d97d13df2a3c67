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

// State is an identity's item at a moment.
type State struct {
	Exists bool
	// Holds are the open calls, oldest first.
	Holds []Hold
	// InFlight is the number of open calls that count against MaxInFlight.
	InFlight int
	// Clients are the keys of the clients that the identity has, sorted.
	Clients []string

	tats map[string]micros
	now  micros
}

// Hold is an open call of an identity.
type Hold struct {
	ID            string
	Start, Expiry time.Time
	Note          []byte
}

// Limit is the state of one of the identity's own limits.
func (s State) Limit(l Limit) Status { return s.ClientLimit("", l) }

// ClientLimit is the state of a limit of one of the identity's clients.
func (s State) ClientLimit(client string, l Limit) Status {
	return l.status(s.tats[l.of(client).tat()], s.now)
}

// HasLimit reports whether the item has a limit at all: one that no call was ever
// charged to is full and not there. client is "" for the identity's own.
func (s State) HasLimit(client string, l Limit) bool {
	_, ok := s.tats[l.of(client).tat()]
	return ok
}

// Recall is what this process last saw of an identity, without asking the store:
// a hint, which may be old or empty, and has no Holds.
func (b *Buckets) Recall(key string) State {
	return State{tats: b.memory.get(key).tats, now: b.now()}
}

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
	s := State{Exists: it != nil, tats: make(map[string]micros), now: b.now()}
	for attr := range it {
		if client, ok := strings.CutPrefix(attr, openAttr("")+"_"); ok {
			s.Clients = append(s.Clients, client)
		}
		if !strings.HasPrefix(attr, tatPrefix) {
			continue
		}
		tat, err := it.micros(attr)
		if err != nil {
			return State{}, err
		}
		s.tats[attr] = tat
	}
	slices.Sort(s.Clients)
	open, err := it.number(attrOpen)
	if err != nil {
		return State{}, err
	}
	s.InFlight = int(open)
	for h := range it.holds() {
		if !h.dead {
			s.Holds = append(s.Holds, Hold{ID: h.id, Start: h.start.time(), Expiry: h.expiry.time(), Note: h.note})
		}
	}
	slices.SortFunc(s.Holds, func(a, b Hold) int { return a.Start.Compare(b.Start) })
	return s, nil
}
