package ledger

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What is read of a roll-up would be written with the same meaning, has no part that is
// more than its whole, and its total is the sum of its tiers.
func FuzzTally(f *testing.F) {
	for _, seed := range []string{`{"tiers":{"":[1,5],"pro":[2,9,1,1,4]},"features":{"cv":[3,14]},"models":{},"identities":{"user#a":[3,14,1,1,4]}}`,
		`{"tiers":{"a":[9223372036854775807,9223372036854775807],"b":[1,1]}}`, `{"tiers":{"a":[-1]}}`, `{"tiers":{"a":[1,2,3]}}`, `{"tiers":{"a":[1,2,0,0,0,0]}}`, `{}`, `null`, `[]`, `{"tiers":null,"x":{"a":[1]}}`, `{"tiers":{"a":[]}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, err := decodeTally(text)
		if err != nil {
			check.That(t, read == nil, "a refused roll-up gives %+v", read)
			return
		}
		var total Amount
		for k, amounts := range read.by {
			for name, a := range amounts {
				check.That(t, a.valid() && a.Calls >= 0 && a.Cost >= 0, "%s %q: %+v", kindNames[k], name, a)
				if kind(k) == byTier {
					total.add(a)
				}
			}
		}
		check.Equal(t, read.total, total, "the total")
		written, err := json.Marshal(read.sums())
		check.OK(t, err)
		again, err := decodeTally(string(written))
		check.OK(t, err)
		check.Diff(t, cmp.Diff(read, again, cmp.AllowUnexported(tally{})), "%s, written and read again", text)
	})
}

// No two names are of one roll-up.
func FuzzRollUpSort(f *testing.F) {
	for _, seed := range []string{"07#3", "7#3", "59#0", "60#0", "-1#0", "07#-3", "07#03", "07", "+7#1", "99999999999999999999#1"} {
		f.Add(seed, int64(494_000))
	}
	f.Fuzz(func(t *testing.T, sort string, h int64) {
		if h < 0 || h > 1<<32 {
			return
		}
		if p, ok := parseRollUpSort(hour(h), sort); ok {
			check.That(t, p.rollUpSort() == sort && p.minute.hour() == hour(h), "%q was read as %+v", sort, p)
		}
	})
}
