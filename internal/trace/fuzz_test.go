package trace

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The forms of what goes on, whatever came.
var (
	parentForm = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$`)
	stateForm  = regexp.MustCompile(`^([a-z0-9][a-z0-9_*/@-]*=[ -+--<>-~]+)?(,[a-z0-9][a-z0-9_*/@-]*=[ -+--<>-~]+)*$`)
)

// What goes on is well-formed and came from the caller, and whoever is called reads of it
// the same trace, with our span as its parent.
func FuzzOf(f *testing.F) {
	parent, xray := "00-"+traceID+"-"+spanID+"-01", "Root=1-"+traceID[:8]+"-"+traceID[8:]+";Parent="+spanID+";Sampled=1"
	for _, seed := range [][3]string{
		{parent, "a=1,b@c=2 , ,d= e", ""}, {parent + "-x", "a=1,a=2", xray}, {"cc" + parent[2:] + "-x", strings.Repeat("k=v,", 40), xray},
		{"", "a=1", xray}, {" " + parent + "\t", "long=" + strings.Repeat("x", 256) + ",b=" + strings.Repeat("y", 250), "Self=1;" + xray}, {"00-0-0-0", "=", "Root=;Sampled=1"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, parent, state, xray string) {
		c := Of(request([]string{parent}, []string{state}, xray, ""))
		if c.Trace == "" {
			check.Equal(t, c, Context{}, "there is no trace, but")
			c.SetHeader(nil)
			return
		}
		h := http.Header{}
		c.SetHeader(h)
		check.That(t, parentForm.MatchString(h.Get("Traceparent")), "traceparent %q", h.Get("Traceparent"))
		check.That(t, strings.Contains(parent, c.Trace) || strings.Contains(xray, c.Trace[:8]+"-"+c.Trace[8:]), "a trace that nobody sent: %s", c.Trace)
		check.That(t, c.Parent == "" || strings.Contains(parent+xray, c.Parent), "a parent that nobody sent: %s", c.Parent)
		check.That(t, len(c.State) <= 512 && stateForm.MatchString(c.State), "tracestate %q", c.State)
		for member := range strings.SplitSeq(c.State, ",") {
			check.That(t, slices.ContainsFunc(strings.Split(state, ","), func(sent string) bool { return strings.Trim(sent, " \t") == member }) || member == "",
				"a member that nobody sent: %q", member)
		}
		again := Of(request(h["Traceparent"], h["Tracestate"], "", ""))
		check.That(t, again.Trace == c.Trace && again.Parent == c.Span && again.State == c.State && again.flags == c.flags, "%+v was read as %+v", c, again)
	})
}
