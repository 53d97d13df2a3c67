package main

import (
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestGoals(t *testing.T) {
	var table table
	for _, c := range []struct {
		is      relation
		value   float64
		columns []int
		want    bool
	}{
		{atMost, 3, nil, true},
		{atMost, 2.9, nil, false},
		{atLeast, 3, nil, true},
		{atLeast, 3.1, nil, false},
		{exactly, 2, []int{1}, true},
		{exactly, 2, []int{2}, false},
		{atMost, 2, []int{0, 1}, true},
		{atMost, 2, []int{0, 2}, false},
	} {
		table.add("", 1, 2, 3)
		table.expect(c.is, c.value, c.columns...)
		check.Equal(t, table.Rows[len(table.Rows)-1].Goal.Met, c.want, "1, 2, 3 with columns %v %s %g: met", c.columns, c.is, c.value)
	}
}
