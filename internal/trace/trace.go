// Package trace takes a caller's trace and carries it on: W3C Trace Context, or that of
// X-Ray where it records. Nothing is recorded here but identifiers, in the log.
//
// What callers send is held to the standard (Trace Context, level 2) to the letter, and
// dropped as a whole if it does not keep it. Nothing is made up where there is no trace: a
// request has an id of its own for the log, and a flag that nobody set would decide in the
// caller's place whether a server behind us samples.
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Context is where a request stands in a trace. The zero value is in none.
type Context struct {
	Trace  string // 32 lower hexadecimal digits, not all 0; "": there is no trace
	Parent string // the caller's span, 16 such digits; "": unknown
	Span   string // of our call, likewise
	State  string // tracestate, at most 512 bytes
	flags  byte
}

// The flags that are known; all others go on as 0.
const (
	sampled    = 1
	knownFlags = sampled | 2 // 2: the trace's id is random
)

// maxState bounds what is carried on of tracestate; the standard asks for no less.
const maxState = 512

// Of reads the trace of a request. One of X-Ray's counts only if X-Ray records it: else
// Lambda and API Gateway make ids that nobody keeps.
func Of(r *http.Request) Context {
	if values := r.Header.Values("Traceparent"); len(values) > 0 {
		c := Context{}
		if len(values) == 1 {
			c = parseParent(strings.Trim(values[0], " \t"))
		}
		if c.Trace != "" {
			c.State = parseState(strings.Join(r.Header.Values("Tracestate"), ","))
			return c.begin()
		}
	}
	for _, text := range []string{ofLambda(r.Context()), r.Header.Get("X-Amzn-Trace-Id")} {
		if c := parseXRay(text); c.Trace != "" {
			return c.begin()
		}
	}
	return Context{}
}

// ofLambda is what Lambda's runtime says of an invocation.
func ofLambda(ctx context.Context) string {
	text, _ := ctx.Value("x-amzn-trace-id").(string) // the key of aws-lambda-go
	return text
}

// begin gives c a span.
func (c Context) begin() Context {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	c.Span = hex.EncodeToString(id[:])
	return c
}

// SetHeader tells whoever is called of the trace, with our span as its parent.
func (c Context) SetHeader(h http.Header) {
	if c.Trace == "" {
		return
	}
	h.Set("Traceparent", fmt.Sprintf("00-%s-%s-%02x", c.Trace, c.Span, c.flags))
	if c.State != "" {
		h.Set("Tracestate", c.State)
	}
}

// SetXRay is SetHeader for a service of AWS.
func (c Context) SetXRay(h http.Header) {
	if c.Trace != "" {
		h.Set("X-Amzn-Trace-Id", fmt.Sprintf("Root=1-%s-%s;Parent=%s;Sampled=%d", c.Trace[:8], c.Trace[8:], c.Span, c.flags&sampled))
	}
}

// parseParent reads traceparent: version-trace-parent-flags. A later version may have more
// behind that, and is read as far as it is known.
func parseParent(text string) Context {
	const length = 55
	if len(text) < length || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Context{}
	}
	version, trace, parent, flags := text[:2], text[3:35], text[36:52], text[53:length]
	switch {
	case !isHex(version), version == "ff", !isID(trace), !isID(parent), !isHex(flags),
		version == "00" && len(text) > length,
		len(text) > length && text[length] != '-':
		return Context{}
	}
	b, _ := hex.DecodeString(flags)
	return Context{Trace: trace, Parent: parent, flags: b[0] & knownFlags}
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func isID(s string) bool { return isHex(s) && strings.Trim(s, "0") != "" }

// parseXRay reads X-Amzn-Trace-Id: Root=1-SECONDS-ID;Parent=SPAN;Sampled=1, in any order,
// with other members between.
func parseXRay(text string) Context {
	var c Context
	for member := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(member), "=")
		switch {
		case name == "Root" && len(value) == 35 && strings.HasPrefix(value, "1-") && value[10] == '-':
			c.Trace = value[2:10] + value[11:]
		case name == "Parent" && len(value) == 16 && isID(value):
			c.Parent = value
		case name == "Sampled" && value == "1":
			c.flags = sampled
		}
	}
	if c.flags == 0 || !isID(c.Trace) {
		return Context{}
	}
	return c
}

// parseState reads tracestate, a list of key=value, and gives what is carried on of it: ""
// if any of it is not as it must be.
func parseState(text string) string {
	var members, keys []string
	for member := range strings.SplitSeq(text, ",") {
		if member = strings.Trim(member, " \t"); member == "" {
			continue
		}
		key, value, ok := strings.Cut(member, "=")
		if !ok || !isKey(key) || !isValue(value) || slices.Contains(keys, key) || len(members) == 32 {
			return ""
		}
		members, keys = append(members, member), append(keys, key)
	}
	size := func() int { return len(strings.Join(members, ",")) }
	// Where all of it is too long, the standard drops long members first, then the last.
	for i := len(members) - 1; i >= 0 && size() > maxState; i-- {
		if len(members[i]) > 128 {
			members = slices.Delete(members, i, i+1)
		}
	}
	for size() > maxState {
		members = members[:len(members)-1]
	}
	return strings.Join(members, ",")
}

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	digits  = "0123456789"
	keyRest = lower + digits + "_-*/"
)

// isKey: a name, or the name of a tenant, which may begin with a digit, at that of a system.
func isKey(key string) bool {
	tenant, system, several := strings.Cut(key, "@")
	if several {
		return isName(tenant, lower+digits, 241) && isName(system, lower, 14)
	}
	return isName(key, lower, 256)
}

func isName(s, first string, longest int) bool {
	return s != "" && len(s) <= longest && strings.IndexByte(first, s[0]) >= 0 && strings.Trim(s, keyRest) == ""
}

// isValue: printable ASCII without comma and equals sign. Spaces at its end are gone.
func isValue(value string) bool {
	if value == "" || len(value) > 256 {
		return false
	}
	for _, c := range []byte(value) {
		if c < ' ' || c > '~' || c == '=' {
			return false
		}
	}
	return true
}
