package span

import (
	"cmp"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "-1h": -time.Hour, "0": 0,
		"1d": day, "0d": 0, "1d12h": 36 * time.Hour, "7d1.5s": 7*day + 1500*time.Millisecond, "106751d": 106751 * day,
	} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "d", "1", "1.5d", "-1d", "1d-1h", "1d.5h", "1d0", "1d+1h", "1d1d", "1h1d", "1d ", "1day", "106752d", "106751d24h", "99999999999999999999d"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q: %s", s, got)
		}
	}
}

// Days are 24 hours; all else is as the standard library has it, and nothing wraps around.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1d12h", "106751d23h47m16s", "106751d24h", "0d", "7d1.5s", "1d-1h", "90s", "1h1d", "-1h", "1d.5h", "1d0", "9223372036854775807ns", "00d1h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Parse(s)
		if want, otherErr := time.ParseDuration(s); otherErr == nil {
			check.That(t, err == nil && got == want, "%q: %s, %v, want %s", s, got, err, want)
			return
		}
		if err != nil {
			check.Equal(t, got, 0, "a refused duration")
			return
		}
		days, rest, _ := strings.Cut(s, "d")
		n, _ := new(big.Int).SetString(days, 10)
		more, moreErr := time.ParseDuration(cmp.Or(rest, "0"))
		want := new(big.Int).Add(n.Mul(n, big.NewInt(int64(24*time.Hour))), big.NewInt(int64(more)))
		check.That(t, moreErr == nil && want.IsInt64() && want.Int64() == int64(got) && got >= 0, "%q: %d, want %s", s, got, want)
	})
}
