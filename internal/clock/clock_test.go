package clock

import (
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestSince(t *testing.T) {
	t.Parallel()
	then := time.Now()
	wall := then.Round(0)
	for name, test := range map[string]struct {
		now, then time.Time
		want      time.Duration
	}{
		"both clocks run":       {then.Add(3 * time.Second), then, 3 * time.Second},
		"the wall clock alone":  {wall.Add(time.Hour), then, time.Hour},
		"it was set back":       {wall.Add(-time.Minute), wall, -time.Minute},
		"nothing has passed":    {then, then, 0},
		"a clock without a day": {time.Unix(7, 0), time.Unix(5, 0), 2 * time.Second},
	} {
		check.Equal(t, Since(test.now, test.then), test.want, "%s", name)
	}
}
