package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
)

// LongestWindow is the longest window of a Sum.
const LongestWindow = 25 * time.Hour

const (
	// parallel is the number of partitions that are read at a time.
	parallel = 8
	// page is the most items in a page, about a quarter of what DynamoDB would send of
	// events: decoded they take several times the room.
	page = 1000
)

// Summary is what the calls of a window come to.
type Summary struct {
	From, To time.Time
	Total    Amount
	// The same by tier, feature and model. Each adds up to Total. The name is empty
	// where it is not known: abandoned calls have no tier.
	Tiers, Features, Models map[string]Amount
	// Top are the identities that spent the most, at most 10, the dearest first.
	Top []Spender
}

// Sum adds up the events with from <= Time < to, at most LongestWindow apart, and
// writes the roll-ups of closed minutes that have none.
func (l *Ledger) Sum(ctx context.Context, from, to time.Time) (Summary, error) {
	if to.Before(from) || to.Sub(from) > LongestWindow {
		return Summary{}, fmt.Errorf("ledger: a window must be 0 to %s long", LongestWindow)
	}
	w := newWindow(from, to)
	marked, err := l.readHours(ctx, w)
	if err != nil {
		return Summary{}, err
	}
	var hours []hour
	for h := range marked {
		hours = append(hours, h)
	}
	t, err := l.sum(ctx, w, hours)
	if err != nil {
		return Summary{}, err
	}
	return Summary{From: from, To: to, Total: t.total, Top: t.top(),
		Tiers: t.by[byTier], Features: t.by[byFeature], Models: t.by[byModel]}, nil
}

// sum adds up what is in w in some hours, all that have events. It takes the
// roll-ups first, then reads the events of what had none and rolls it up if it is
// whole and closed.
func (l *Ledger) sum(ctx context.Context, w window, hours []hour) (*tally, error) {
	s := &summing{Ledger: l, window: w, rollable: window{w.from, min(w.to, l.settled())}, tally: newTally(), prior: map[partition]prior{}}
	if err := inParallel(ctx, hours, s.takeRollUps); err != nil {
		return nil, err
	}
	var rest []partition
	for _, h := range hours {
		first, last := w.and(window{h.start(), h.end()}).minutes()
		for m := first; m <= last; m++ {
			for shard := range l.opts.Shards {
				if p := (partition{m, shard}); !s.prior[p].taken {
					rest = append(rest, p)
				}
			}
		}
	}
	return s.tally, inParallel(ctx, rest, s.takeEvents)
}

func inParallel[T any](ctx context.Context, all []T, do func(context.Context, T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, one := range all {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, one)
		})
	}
	return g.Wait()
}

// summing is a sum under way.
type summing struct {
	*Ledger
	window   window
	rollable window // the part of it that can be closed

	mu    sync.Mutex
	tally *tally
	prior map[partition]prior
}

// prior is what was found of a roll-up.
type prior struct {
	late  int64
	taken bool // into the tally
}

// takeRollUps adds the roll-ups of the whole and closed minutes of an hour.
func (s *summing) takeRollUps(ctx context.Context, h hour) error {
	first, last := s.rollable.and(window{h.start(), h.end()}).wholeMinutes()
	if first > last {
		return nil
	}
	in := query(h.rollUpsKey())
	// "~" comes after every shard.
	between(in, fmt.Sprintf("%02d", first%60), fmt.Sprintf("%02d~", last%60))
	return s.read(ctx, in, func(it item) error {
		p, ok := parseRollUpSort(h, dynamo.TextOf(it, dynamo.Sort))
		if !ok {
			return errors.New("a roll-up with an invalid sort key")
		}
		r, err := decodeRollUp(it)
		if err != nil {
			return err
		}
		t := newTally()
		if r.sums != "" {
			if t, err = decodeTally(r.sums); err != nil {
				return err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.prior[p] = prior{r.late, r.sums != ""}
		s.tally.merge(t)
		return nil
	})
}

// takeEvents adds the events of a partition.
func (s *summing) takeEvents(ctx context.Context, p partition) error {
	t := newTally()
	in := query(p.key())
	in.ProjectionExpression = aws.String(attrEvent)
	err := s.read(ctx, in, func(it item) error {
		r, err := recordOf(it)
		if err != nil || !s.window.holds(r.Time) {
			return err
		}
		t.addRecord(r)
		return nil
	})
	if err != nil {
		return err
	}
	if first, last := s.rollable.wholeMinutes(); first <= p.minute && p.minute <= last {
		s.writeRollUp(ctx, keyOf(p.minute.hour().rollUpsKey(), p.rollUpSort()), p.minute.start(), s.prior[p].late, t.sums())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.merge(t)
	return nil
}

// query asks for a partition key's items. Reads are consistent: an event that was
// missed when its minute was closed would stay so.
func query(pk string) *dynamodb.QueryInput {
	return &dynamodb.QueryInput{
		KeyConditionExpression:    aws.String(dynamo.Partition + " = :pk"),
		ExpressionAttributeValues: item{":pk": dynamo.Text(pk)},
		ConsistentRead:            aws.Bool(true),
		Limit:                     aws.Int32(page),
	}
}

// between narrows a query to sort keys from first to last.
func between(in *dynamodb.QueryInput, first, last string) {
	in.KeyConditionExpression = aws.String(*in.KeyConditionExpression + " AND " + dynamo.Sort + " BETWEEN :first AND :last")
	in.ExpressionAttributeValues[":first"] = dynamo.Text(first)
	in.ExpressionAttributeValues[":last"] = dynamo.Text(last)
}

// read gives a query's items, page by page.
func (l *Ledger) read(ctx context.Context, in *dynamodb.QueryInput, each func(item) error) error {
	in.TableName = &l.opts.Table
	for {
		out, err := l.db.Query(ctx, in)
		if err != nil {
			return fmt.Errorf("ledger: reading: %w", err)
		}
		for _, it := range out.Items {
			if err := each(it); err != nil {
				return fmt.Errorf("ledger: partition %s: %w", dynamo.TextOf(in.ExpressionAttributeValues, ":pk"), err)
			}
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return nil
		}
	}
}
