package span

import (
	"testing"
	"time"
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
	for _, s := range []string{"", "d", "1", "1.5d", "-1d", "1d-1h", "1d.5h", "1d+1h", "1d1d", "1h1d", "1d ", "1day", "106752d", "106751d24h", "99999999999999999999d"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q: %s", s, got)
		}
	}
}
