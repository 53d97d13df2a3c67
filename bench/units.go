package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// writeUnits adds up the write units of the calls of a user, and of the clients of
// a network.
func writeUnits(ctx context.Context, l *lab) ([]table, error) {
	user, err := l.userUnits(ctx)
	if err != nil {
		return nil, err
	}
	network, err := l.networkUnits(ctx)
	return []table{user, network}, err
}

// userUnits is about a user's calls: one process, 4 limits, 8 calls open at a time.
func (l *lab) userUnits(ctx context.Context) (table, error) {
	const open, rounds = 8, 50
	_, client, name, err := l.table(ctx, 0)
	if err != nil {
		return table{}, err
	}
	db := &metered{Client: client}
	clock := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	b, err := l.buckets(db, name, func() time.Time { return clock })
	if err != nil {
		return table{}, err
	}
	limits := l.userLimits(l.policy.Features["cv"])
	request := func(cost int64) bucket.Request {
		req := bucket.Request{Key: "user#auth0|5f7c8ec7c33c6c004bbafe82", MaxInFlight: open,
			Deadline: clock.Add(90 * time.Second), Note: make([]byte, 12)}
		for _, limit := range limits {
			c := bucket.Charge{Limit: limit, Cost: 1}
			if limit.Return == bucket.OnSettle {
				c.Cost = cost
			}
			req.Charges = append(req.Charges, c)
		}
		return req
	}

	largest, calls := 0, 0
	for range rounds {
		var reservations []*bucket.Reservation
		for range open {
			d, err := b.Reserve(ctx, request(2000))
			if err != nil {
				return table{}, err
			}
			if d.Reservation == nil {
				return table{}, fmt.Errorf("denied by %s", d.Denials[0].Limit.Name)
			}
			reservations = append(reservations, d.Reservation)
			clock = clock.Add(time.Second)
		}
		size, err := db.sizeOf(ctx, name, request(1).Key)
		if err != nil {
			return table{}, err
		}
		largest = max(largest, size)
		for _, r := range reservations {
			if err := r.Settle(ctx, []int64{1, 700, 500, 1}); err != nil {
				return table{}, err
			}
			clock = clock.Add(time.Second)
			calls++
		}
		clock = clock.Add(24 * time.Hour)
	}
	_, units := db.take()
	perCall := units / float64(calls)
	perEvent, err := l.eventUnits(ctx, calls)
	if err != nil {
		return table{}, err
	}

	// Beyond the tokens that an open call leaves: the first denial asks the store,
	// the next are answered from memory.
	if _, err := b.Reserve(ctx, request(2000)); err != nil {
		return table{}, err
	}
	db.take()
	denied := func() (float64, error) {
		d, err := b.Reserve(ctx, request(limits[1].Capacity))
		if err == nil && d.Reservation != nil {
			err = errors.New("admitted beyond the limit")
		}
		_, units := db.take()
		return units, err
	}
	first, err := denied()
	if err != nil {
		return table{}, err
	}
	repeated := 0.0
	for range 9 {
		clock = clock.Add(100 * time.Millisecond)
		units, err := denied()
		if err != nil {
			return table{}, err
		}
		repeated += units
	}

	t := table{Title: "Write units as the store reports them, one process, 4 limits and 8 open calls", Columns: []column{{"figure", 2}}}
	t.add("largest item, bytes", float64(largest))
	t.expect(atMost, 1024)
	t.add(fmt.Sprintf("units per admitted call, of %d: reserve and settle", calls), perCall)
	t.expect(atMost, 2)
	t.add("units of its spend event, its share of the hour's mark included", perEvent)
	t.add("units per settled call in all, pools apart", perCall+perEvent)
	t.expect(atMost, 3.01) // the mark: one write an hour and process
	t.add("units of a denial", first)
	t.expect(atMost, 1)
	t.add("units of 9 more within a second", repeated)
	t.expect(atMost, 0)
	return t, nil
}

// networkUnits is about anonymous callers, who share the item of their network.
func (l *lab) networkUnits(ctx context.Context) (table, error) {
	const rounds = 10
	_, client, tableName, err := l.table(ctx, 0)
	if err != nil {
		return table{}, err
	}
	db := &metered{Client: client}
	clock := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	b, err := l.buckets(db, tableName, func() time.Time { return clock })
	if err != nil {
		return table{}, err
	}
	tier := l.policy.Tiers[policy.Anonymous]
	charges := []bucket.Charge{
		{Limit: limit(tier.Network.Requests, bucket.Never), Cost: 1},
		{Limit: limit(tier.Network.Tokens, bucket.OnSettle), Cost: 2000},
		{Limit: limit(tier.Requests, bucket.Never), Cost: 1, OfClient: true},
		{Limit: limit(tier.Tokens, bucket.OnSettle), Cost: 2000, OfClient: true},
	}
	t := table{Title: "The item of a network whose clients have a call open each, 2 limits of its own and 2 of each client",
		Columns: []column{{"bytes", 0}, {"units per call", 2}}}
	for _, clients := range []int{1, 32} {
		key := fmt.Sprintf("net#abcdefghijklmn%02d", clients)
		largest := 0
		for range rounds {
			var reservations []*bucket.Reservation
			for i := range clients {
				d, err := b.Reserve(ctx, bucket.Request{Key: key, Charges: charges, MaxInFlight: tier.Network.MaxInFlight,
					Client:   bucket.Client{Key: fmt.Sprintf("CLIENT%c%c", 'A'+i/8, 'A'+i%8), MaxInFlight: tier.MaxInFlight},
					Deadline: clock.Add(90 * time.Second), Note: make([]byte, 12)})
				if err != nil {
					return table{}, err
				}
				if d.Reservation == nil {
					return table{}, fmt.Errorf("denied by %s", d.Denials[0].Limit.Name)
				}
				reservations = append(reservations, d.Reservation)
				clock = clock.Add(time.Second)
			}
			size, err := db.sizeOf(ctx, tableName, key)
			if err != nil {
				return table{}, err
			}
			largest = max(largest, size)
			for _, r := range reservations {
				if err := r.Settle(ctx, []int64{1, 700, 1, 700}); err != nil {
					return table{}, err
				}
				clock = clock.Add(time.Second)
			}
			clock = clock.Add(time.Hour)
		}
		name := "1 client"
		if clients > 1 {
			name = fmt.Sprintf("%d clients", clients)
		}
		_, units := db.take()
		t.add(name, float64(largest), units/float64(rounds*clients))
	}
	return t, nil
}
