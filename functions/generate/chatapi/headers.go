package chatapi

import (
	"cmp"
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
)

// exposed names every header of ours that a page of another origin may read.
var exposed = strings.Join([]string{
	"Retry-After", "RateLimit", "RateLimit-Policy",
	"x-request-id", "x-should-retry", "x-max-output-tokens", "x-input-cut", "x-input-truncated",
	"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
	"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
}, ", ")

// limitHeaders tells what is left of all limits of a caller, on a success and on a denial
// alike. RateLimit and RateLimit-Policy are those of
// draft-ietf-httpapi-ratelimit-headers-11, which says:
//
//   - of t (4.1.2): "the number of seconds within which the client can use no more than the
//     available quota". Ours refill evenly, so that this ends when the next unit is there. It
//     is rounded up, as a wait has to be, and 0 if the limit is full;
//   - of Retry-After (6): its value "SHOULD NOT reference a point in time earlier than the
//     end of the effective window". It does not: what was denied is more than r.
//
// denied is nil on a success.
func (h *Handler) limitHeaders(header http.Header, o *admission.Offer, left []limits.Seen, denied *admission.Refusal) {
	header.Set("RateLimit-Policy", h.policies[o])
	var list strings.Builder
	for i, l := range left {
		if i > 0 {
			list.WriteString(", ")
		}
		more := l.MoreIn()
		if denied != nil && denied.Limit.Name == l.Name {
			more = min(more, denied.Wait) // a call may have needed a part of a micro-dollar
		}
		list.WriteString(`"` + l.Name + `";r=` + strconv.FormatInt(l.Remaining(), 10) + `;t=` + strconv.FormatInt(openai.Seconds(more), 10))
	}
	header.Set("RateLimit", list.String())
	tightest(header, "Tokens", policy.Tokens, left)
	tightest(header, "Requests", policy.Requests, left)
}

// tightest sets the headers that OpenAI's clients know for the limit of a unit with the
// least remaining. More requests than a pass has calls left would be too many.
func tightest(h http.Header, suffix string, unit policy.Unit, left []limits.Seen) {
	var least *limits.Seen
	most := int64(math.MaxInt64)
	for i, l := range left {
		switch {
		case l.Unit == unit && (least == nil || l.Remaining() < least.Remaining()):
			least = &left[i]
		case l.Unit == policy.Calls && unit == policy.Requests:
			most = l.Remaining()
		}
	}
	if least == nil {
		return
	}
	h.Set("X-Ratelimit-Limit-"+suffix, strconv.FormatInt(least.Capacity, 10))
	h.Set("X-Ratelimit-Remaining-"+suffix, strconv.FormatInt(min(most, least.Remaining()), 10))
	h.Set("X-Ratelimit-Reset-"+suffix, ceilMillis(least.FullIn()).String())
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
		fmt.Fprintf(&b, `"%s";q=%d;w=%d`, l.Name, l.Shown(l.Capacity), int64(l.Window().Seconds()))
		if l.Unit != policy.Requests { // the draft's default
			fmt.Fprintf(&b, `;qu="%s"`, l.Unit)
		}
	}
	return b.String()
}

// callHeaders tell what the caps have done to the request.
func callHeaders(h http.Header, c *admission.Call) {
	if c.MaxOutput > 0 { // embeddings have no output
		h.Set("X-Max-Output-Tokens", strconv.FormatInt(c.MaxOutput, 10))
	}
	if c.Cut.Characters > 0 {
		h.Set("X-Input-Truncated", strconv.Itoa(c.Cut.Characters)) // older than X-Input-Cut, which says it, too
	}
	if cut := inputCut(c.Cut); cut != "" {
		h.Set("X-Input-Cut", cut)
	}
}

// inputCut lists what was cut, by kind: "messages=3, images=1"; "" if nothing was.
func inputCut(c admission.Cut) string {
	var list []string
	for _, part := range []struct {
		name string
		n    int
	}{{"messages", c.Messages}, {"characters", c.Characters}, {"images", c.Images}, {"tools", c.Tools}} {
		if part.n > 0 {
			list = append(list, part.name+"="+strconv.Itoa(part.n))
		}
	}
	if c.Effort != nil {
		list = append(list, "reasoning_effort="+cmp.Or(*c.Effort, "default"))
	}
	return strings.Join(list, ", ")
}
