package chatapi

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/limits"
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
func (h *Handler) limitHeaders(header http.Header, o *admission.Offer, states []bucket.Status, denied *admission.Refusal) {
	header.Set("RateLimit-Policy", h.policies[o])
	var list strings.Builder
	for i, s := range states {
		name, remaining, seconds := s.Limit.Name, o.Limits[i].Shown(s.Remaining), openai.Seconds(s.FullIn)
		if denied != nil {
			if name != denied.Limit.Name {
				continue
			}
			seconds = openai.Seconds(denied.Wait)
		}
		if list.Len() > 0 {
			list.WriteString(", ")
		}
		list.WriteString(`"` + name + `";r=` + strconv.FormatInt(remaining, 10) + `;t=` + strconv.FormatInt(seconds, 10))
	}
	header.Set("RateLimit", list.String())
	tightest(header, "tokens", policy.Tokens, o, states)
	tightest(header, "requests", policy.Requests, o, states)
}

// tightest sets the headers that OpenAI's clients know for the limit of a unit
// with the least remaining.
func tightest(h http.Header, suffix string, unit policy.Unit, o *admission.Offer, states []bucket.Status) {
	var least *bucket.Status
	for i := range states {
		if o.Limits[i].Unit == unit && (least == nil || states[i].Remaining < least.Remaining) {
			least = &states[i]
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

// policyHeader lists limits as RateLimit-Policy does.
func policyHeader(list []limits.Limit) string {
	var b strings.Builder
	for i, l := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `"%s";q=%d;w=%d`, l.Name, l.Shown(l.Capacity), int64(l.Period.Seconds()))
		if l.Unit == policy.Tokens {
			b.WriteString(`;qu="tokens"`)
		}
	}
	return b.String()
}

// callHeaders tell what the caps have done to the request.
func callHeaders(h http.Header, c *admission.Call) {
	h.Set("X-Max-Output-Tokens", strconv.FormatInt(c.MaxOutput, 10))
	if c.Dropped > 0 {
		h.Set("X-Input-Truncated", strconv.Itoa(c.Dropped))
	}
}
