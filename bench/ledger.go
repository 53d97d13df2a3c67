package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/local/engine"
)

// ledgerSums measures the sum of a trailing hour that begins and ends within a
// minute: first from events alone, rolling up what is closed, then again from the
// roll-ups and the events of the other minutes.
func ledgerSums(ctx context.Context, l *lab) ([]table, error) {
	loads := []struct{ events, identities int }{{10_000, 1_000}, {100_000, 10_000}}
	if l.long {
		loads = append(loads, []struct{ events, identities int }{{1_000_000, 100_000}, {1_000_000, 1_000_000}}...)
	}
	t := table{
		Title: "Sum of a trailing hour of spend events; units as the store reports them",
		// The engine works on the same processors: of the seconds most are its own.
		Columns: []column{{"read units", 0}, {"write units", 0}, {"seconds", 2}, {"CPU seconds of ours", 2}, {"peak heap, MB", 0}},
	}
	for _, load := range loads {
		s, err := l.spend(ctx, load.events, load.identities)
		if err != nil {
			return nil, err
		}
		for _, when := range []string{"first", "again"} {
			figures, err := s.sum(ctx)
			if err != nil {
				return nil, err
			}
			t.add(fmt.Sprintf("%d events of %d identities, %s", load.events, load.identities, when), figures...)
			if load.events == 1_000_000 {
				t.expect(atMost, 20, 2)
			}
		}
	}
	return []table{t}, nil
}

// spending is a table of spend events in the hour before now.
type spending struct {
	db     *metered
	ledger *ledger.Ledger
	now    time.Time
	events int
	cost   price.Pico
}

// spend fills a table.
func (l *lab) spend(ctx context.Context, events, identities int) (*spending, error) {
	name := fmt.Sprintf("spend-%d", l.tables.Add(1))
	db := engine.Client(l.engine.URL, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: l.transport} })
	if err := engine.CreateSpendTable(ctx, db, name); err != nil {
		return nil, err
	}
	s := &spending{
		db:     &metered{Client: db},
		now:    time.Date(2026, 3, 2, 9, 20, 30, 0, time.UTC),
		events: events,
	}
	opts := ledger.Options{Table: name, Now: func() time.Time { return s.now }, AttemptTimeout: 20 * time.Second}
	var err error
	if s.ledger, err = ledger.New(s.db, opts); err != nil {
		return nil, err
	}

	// The events are recorded in time, or each would take back roll-ups.
	inTime := opts
	inTime.Now = func() time.Time { return s.now.Add(-time.Hour) }
	const writers = 2 // more of them wait for each other in the engine
	random := rand.New(rand.NewPCG(5, 0))
	var all errgroup.Group
	all.SetLimit(writers)
	for from := 0; from < events; from += batch * 40 {
		var some []ledger.Event
		for i := from; i < min(events, from+batch*40); i++ {
			e := ledger.Event{
				Reservation: fmt.Sprintf("%011x", random.Uint64()>>20),
				Time:        s.now.Add(-time.Hour + time.Duration(i)*time.Hour/time.Duration(events)),
				Identity:    fmt.Sprintf("user#auth0|%024x", i%identities),
				Tier:        []string{"user", "pro"}[i%2], Feature: []string{"docqa", "cv", "linkedin"}[i%3], Model: "small",
				Usage: price.Usage{Input: 700 + random.Int64N(900), Output: random.Int64N(400)}, Outcome: ledger.Completed,
			}
			e.Cost = price.Pico(e.Usage.Input*400_000 + e.Usage.Output*1_600_000)
			s.cost += e.Cost
			some = append(some, e)
		}
		all.Go(func() error {
			b := &batcher{Client: db}
			writer, err := ledger.New(b, inTime)
			if err != nil {
				return err
			}
			for _, e := range some {
				if err := writer.Record(ctx, e); err != nil {
					return err
				}
			}
			return b.flush(ctx)
		})
	}
	return s, all.Wait()
}

// eventUnits are the write units of each of some spend events, recorded over as many
// seconds.
func (l *lab) eventUnits(ctx context.Context, events int) (float64, error) {
	s, err := l.spend(ctx, 0, 1)
	if err != nil {
		return 0, err
	}
	for i := range events {
		e := ledger.Event{Reservation: fmt.Sprintf("%011x", i), Time: s.now, Identity: "user#auth0|5f7c8ec7c33c6c004bbafe82", Tier: "user", Feature: "cv",
			Model: "small", Usage: price.Usage{Input: 1200, Output: 300}, Cost: 960_000_000, Outcome: ledger.Completed}
		if err := s.ledger.Record(ctx, e); err != nil {
			return 0, err
		}
		s.now = s.now.Add(time.Second)
	}
	_, writes := s.db.take()
	return writes / float64(events), nil
}

// sum sums the trailing hour and gives read units, write units, seconds, seconds of
// this process's CPU, and the peak of the heap in megabytes.
func (s *spending) sum(ctx context.Context) ([]float64, error) {
	s.db.take()
	peak := watchHeap()
	start, cpu := time.Now(), processorTime()
	sum, err := s.ledger.Sum(ctx, s.now.Add(-time.Hour), s.now)
	took, worked, heap := time.Since(start), processorTime()-cpu, peak()
	if err != nil {
		return nil, err
	}
	if sum.Total.Calls != int64(s.events) || sum.Total.Cost != s.cost {
		return nil, fmt.Errorf("the sum is %d calls and $%s, want %d and $%s", sum.Total.Calls, sum.Total.Cost, s.events, s.cost)
	}
	reads, writes := s.db.take()
	return []float64{reads, writes, took.Seconds(), worked.Seconds(), heap / 1e6}, nil
}

// watchHeap gives a function that ends the watch and gives the most bytes of objects,
// garbage included, that were on the heap meanwhile.
func watchHeap() (peak func() float64) {
	runtime.GC()
	done, result := make(chan struct{}), make(chan float64)
	go func() {
		most := 0.0
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			metrics.Read(sample)
			most = max(most, float64(sample[0].Value.Uint64()))
			select {
			case <-tick.C:
			case <-done:
				tick.Stop()
				result <- most
				return
			}
		}
	}()
	return func() float64 { close(done); return <-result }
}

// batch is the most items in a BatchWriteItem.
const batch = 25

// batcher is a DynamoDB client that puts many items at a time, to fill a table
// faster. It is not safe for concurrent use.
type batcher struct {
	*dynamodb.Client
	table    string
	requests []types.WriteRequest
}

func (b *batcher) PutItem(ctx context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	b.table = *in.TableName
	b.requests = append(b.requests, types.WriteRequest{PutRequest: &types.PutRequest{Item: in.Item}})
	if len(b.requests) < batch {
		return &dynamodb.PutItemOutput{}, nil
	}
	return &dynamodb.PutItemOutput{}, b.flush(ctx)
}

func (b *batcher) flush(ctx context.Context) error {
	for len(b.requests) > 0 {
		out, err := b.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{b.table: b.requests}})
		if err != nil {
			return err
		}
		b.requests = out.UnprocessedItems[b.table]
	}
	return nil
}
