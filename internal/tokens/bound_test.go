package tokens

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestUpperBound(t *testing.T) {
	t.Parallel()
	bound := must(t, upperBound)
	for _, c := range []struct {
		text string
		want int
	}{
		{"", 0},
		{"hello", 5},
		{"é", 2},
		{"中文", 6},
		{"\ufdfa", 33},
		{"x\ufdfay", 35},
		{strings.Repeat("\ufdfa", 1000), 33_000},
		{"ﬁ", 3},       // shorter as NFKC
		{"e\u0301", 3}, // composes to 2 bytes
		{"\u212b", 3},  // the Angstrom sign, 2 bytes as NFKC
		{"㍿", 12},      // "株式会社"
		{"\U0001f468", 4},
	} {
		check.Equal(t, bound.Count(c.text), c.want, "%.20q counts", c.text)
	}
}

// The bound is the larger of the two forms, and no exact count is above it.
func TestUpperBoundHolds(t *testing.T) {
	t.Parallel()
	bound, o200k, cl100k := must(t, upperBound), must(t, o200kBase), must(t, cl100kBase)
	for _, g := range readGolden(t) {
		if g.To > 0 || g.Seed%4 > 1 { // enough without all of the random ones
			continue
		}
		g.each(func(text string) {
			got := bound.Count(text)
			want := max(len(text), len(norm.NFKC.String(text)))
			check.That(t, got == want, "%.40q counts %d, want %d", text, got, want)
			n := max(o200k.Count(text), cl100k.Count(text))
			check.That(t, n <= got, "%.40q has %d tokens, above the bound of %d", text, n, got)
		})
	}
}
