package bucket_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

var (
	tokensPerHour = bucket.Limit{Name: "tokens", Capacity: 50_000, Period: time.Hour, Return: bucket.OnSettle}
	callsPerMin   = bucket.Limit{Name: "requests", Capacity: 60, Period: time.Minute, Return: bucket.Never}
	resultsPerDay = bucket.Limit{Name: "cv", Capacity: 10, Period: 24 * time.Hour, Return: bucket.OnExpiry}
)

// now stands still, so that nothing is refilled while the examples run.
var now = time.Now()

func newBuckets() *bucket.Buckets {
	// In production: dynamodb.NewFromConfig(cfg), the name of your table, no Now.
	db, table, err := enginetest.NewTable()
	if err != nil {
		log.Fatal(err)
	}
	b, err := bucket.New(db, bucket.Options{Table: table, LongestPeriod: 24 * time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	return b
}

// A call that may use up to 3,000 tokens and really used 420.
func Example() {
	ctx := context.Background()
	b := newBuckets()

	d, err := b.Reserve(ctx, bucket.Request{
		Key: "user#123",
		Charges: []bucket.Charge{
			{Limit: tokensPerHour, Cost: 3000},
			{Limit: callsPerMin, Cost: 1},
			{Limit: resultsPerDay, Cost: 1},
		},
		MaxInFlight: 8,
		Deadline:    now.Add(time.Minute),
	})
	if err != nil {
		log.Fatal(err) // the store: make no call
	}
	if d.Reservation == nil {
		log.Fatalf("denied by %s, retry after %s", d.Denials[0].Limit.Name, d.Denials[0].RetryAfter)
	}
	fmt.Println("reserved, tokens left:", d.Limits[0].Remaining)

	// ... the call ...

	// Settle whatever became of it, in a context that outlives the request's.
	if err := d.Reservation.Settle(context.WithoutCancel(ctx), []int64{420, 1, 1}); err != nil {
		log.Print(err) // the hold expires
	}
	s, err := b.Peek(ctx, "user#123")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("settled, tokens used:", tokensPerHour.Capacity-s.Limit(tokensPerHour).Remaining, "of", tokensPerHour.Capacity)
	// Output:
	// reserved, tokens left: 47000
	// settled, tokens used: 420 of 50000
}

// A call that failed gives back tokens and quota, but not its request.
func ExampleReservation_Cancel() {
	ctx := context.Background()
	b := newBuckets()
	d, err := b.Reserve(ctx, bucket.Request{
		Key:         "user#123",
		Charges:     []bucket.Charge{{Limit: callsPerMin, Cost: 1}, {Limit: resultsPerDay, Cost: 1}},
		MaxInFlight: 8,
		Deadline:    now.Add(time.Minute),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := d.Reservation.Cancel(ctx); err != nil {
		log.Fatal(err)
	}
	s, err := b.Peek(ctx, "user#123")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("requests left:", s.Limit(callsPerMin).Remaining)
	fmt.Println("results left:", s.Limit(resultsPerDay).Remaining)
	// Output:
	// requests left: 59
	// results left: 10
}

// A denial is a value: it says who denied, what would fit, and when to come back.
func ExampleBuckets_Reserve_denied() {
	b := newBuckets()
	d, err := b.Reserve(context.Background(), bucket.Request{
		Key:         "user#123",
		Charges:     []bucket.Charge{{Limit: resultsPerDay, Cost: 11}},
		MaxInFlight: 8,
		Deadline:    now.Add(time.Minute),
	})
	if err != nil {
		log.Fatal(err)
	}
	denial := d.Denials[0]
	fmt.Println(denial.Limit.Name, "requested", denial.Requested, "remaining", denial.Remaining, "impossible", denial.Impossible)
	// Output: cv requested 11 remaining 10 impossible true
}

// Where something dear comes before the reserve, a forecast spares it: what was denied a
// moment ago is refused from memory, without asking the store.
func ExampleBuckets_Prepare() {
	ctx := context.Background()
	b := newBuckets()
	for range 2 {
		p, err := b.Prepare(bucket.Request{
			Key:         "user#123",
			Charges:     []bucket.Charge{{Limit: resultsPerDay, Cost: 10}},
			MaxInFlight: 8,
			Deadline:    now.Add(time.Minute),
		})
		if err != nil {
			log.Fatal(err)
		}
		if p.Forecast().Refused() {
			fmt.Println("refused before")
			continue
		}
		for range 2 {
			d, err := p.Reserve(ctx) // each is a call of its own
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("admitted:", d.Reservation != nil)
		}
	}
	// Output:
	// admitted: true
	// admitted: false
	// refused before
}
