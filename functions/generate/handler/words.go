package handler

import (
	"fmt"
	"math"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// inWords gives a wait as a person says it, rounded up.
func inWords(d time.Duration) string {
	s := openai.Seconds(d)
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		// 90 minutes say more than 2 hours.
		if s >= 2*unit.seconds || s == unit.seconds {
			n := int64(math.Ceil(float64(s) / float64(unit.seconds)))
			if n == 1 {
				return "1 " + unit.name
			}
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return "a moment"
}
