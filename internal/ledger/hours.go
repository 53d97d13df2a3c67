package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
)

// Hour is what the calls of a clock hour (UTC) come to.
type Hour struct {
	Start time.Time
	Amount
}

// Hours gives the whole clock hours from from to to that are closed, the oldest
// first, those without a call included. It reads a month in one query, and what has
// no roll-up yet minute by minute, once. from and to are at most Retention apart.
func (l *Ledger) Hours(ctx context.Context, from, to time.Time) ([]Hour, error) {
	if to.Before(from) || to.Sub(from) > Retention {
		return nil, fmt.Errorf("ledger: hours must be from a span of 0 to %s", Retention)
	}
	w := newWindow(from, to)
	w.to = min(w.to, l.settled())
	first, last := w.wholeHours()
	if first > last {
		return nil, nil
	}
	rolled, err := l.readHours(ctx, window{first.start(), last.end()})
	if err != nil {
		return nil, err
	}
	hours := make([]Hour, 0, last-first+1)
	for h := first; h <= last; h++ {
		one := Hour{Start: h.time()}
		if r, marked := rolled[h]; marked {
			if one.Amount, err = l.hourAmount(ctx, h, r); err != nil {
				return nil, err
			}
		}
		hours = append(hours, one)
	}
	return hours, nil
}

// hourAmount is the sum of a closed hour: that of its roll-up, or else made anew.
func (l *Ledger) hourAmount(ctx context.Context, h hour, r rollUp) (Amount, error) {
	if r.sums != "" {
		a, err := decodeAmount(r.sums)
		if err != nil {
			return a, fmt.Errorf("ledger: hour %s: %w", h.sort(), err)
		}
		return a, nil
	}
	t, err := l.sum(ctx, window{h.start(), h.end()}, []hour{h})
	if err != nil {
		return Amount{}, err
	}
	l.writeRollUp(ctx, keyOf(h.key(), h.sort()), h.start(), r.late, t.total.numbers())
	return t.total, nil
}

// readHours reads the items of the hours that w touches. An hour without one has no
// events.
func (l *Ledger) readHours(ctx context.Context, w window) (map[hour]rollUp, error) {
	hours := map[hour]rollUp{}
	first, last := w.hours()
	for first <= last {
		in := query(first.key())
		between(in, first.sort(), last.sort())
		err := l.read(ctx, in, func(it item) error {
			start, err := time.Parse(hourFormat, dynamo.TextOf(it, dynamo.Sort))
			if err != nil {
				return errors.New("a roll-up with an invalid sort key")
			}
			r, err := decodeRollUp(it)
			hours[hour(start.Unix()/3600)] = r
			return err
		})
		if err != nil {
			return nil, err
		}
		month := first.time()
		first = hour(time.Date(month.Year(), month.Month()+1, 1, 0, 0, 0, 0, time.UTC).Unix() / 3600)
	}
	return hours, nil
}
