package main

import (
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestPercentile(t *testing.T) {
	ms := func(n ...int) []time.Duration {
		var list []time.Duration
		for _, n := range n {
			list = append(list, time.Duration(n)*time.Millisecond)
		}
		return list
	}
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100-i) * time.Millisecond
	}
	for _, c := range []struct {
		durations []time.Duration
		p         float64
		want      int
	}{
		{nil, 50, 0},
		{ms(7), 0, 7},
		{ms(7), 99, 7},
		{ms(3, 1, 2), 50, 2},
		{ms(4, 3, 1, 2), 50, 2},
		{ms(4, 3, 1, 2), 51, 3},
		{hundred, 99, 99},
		{hundred, 99.5, 100},
		{hundred, 100, 100},
	} {
		got := percentile(c.durations, c.p)
		check.That(t, got == time.Duration(c.want)*time.Millisecond, "percentile %g of %d durations is %s, want %d ms", c.p, len(c.durations), got, c.want)
	}
}
