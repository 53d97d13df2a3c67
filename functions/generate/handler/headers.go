package handler

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// exposed names every header of ours that a page of another origin may read.
var exposed = strings.Join([]string{
	"Retry-After", "RateLimit", "RateLimit-Policy",
	"x-request-id", "x-should-retry", "x-max-output-tokens", "x-input-truncated",
	"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
	"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
}, ", ")

// limitHeaders tells the state of the limits: all of them after an admission,
// the one that denied after a denial.
func limitHeaders(h http.Header, o *offer, d bucket.Decision, denied *openai.Error) {
	h.Set("RateLimit-Policy", o.policy)
	var list strings.Builder
	for i, s := range d.Limits {
		name, remaining, seconds := s.Limit.Name, o.limits[i].Shown(s.Remaining), openai.Seconds(s.FullIn)
		if denied != nil {
			if name != denied.Denied.Limit {
				continue
			}
			seconds = openai.Seconds(denied.RetryAfter)
		}
		if list.Len() > 0 {
			list.WriteString(", ")
		}
		list.WriteString(`"` + name + `";r=` + strconv.FormatInt(remaining, 10) + `;t=` + strconv.FormatInt(seconds, 10))
	}
	h.Set("RateLimit", list.String())
	tightest(h, "tokens", policy.Tokens, o, d)
	tightest(h, "requests", policy.Requests, o, d)
}

// tightest sets the headers that OpenAI's clients know for the limit of a unit
// with the least remaining.
func tightest(h http.Header, suffix string, unit policy.Unit, o *offer, d bucket.Decision) {
	var least *bucket.Status
	for i := range d.Limits {
		if o.limits[i].Unit == unit && (least == nil || d.Limits[i].Remaining < least.Remaining) {
			least = &d.Limits[i]
		}
	}
	if least == nil {
		return
	}
	h.Set("X-Ratelimit-Limit-"+suffix, strconv.FormatInt(least.Limit.Capacity, 10))
	h.Set("X-Ratelimit-Remaining-"+suffix, strconv.FormatInt(least.Remaining, 10))
	h.Set("X-Ratelimit-Reset-"+suffix, ceilMillis(least.FullIn).String())
}

// ceilMillis rounds up, but for the longest Durations, which cannot be.
func ceilMillis(d time.Duration) time.Duration {
	if d > math.MaxInt64-time.Millisecond {
		return d.Truncate(time.Millisecond)
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
