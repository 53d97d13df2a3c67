package trace

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

func request(traceparent, tracestate []string, xray, lambda string) *http.Request {
	r, _ := http.NewRequestWithContext(context.WithValue(context.Background(), "x-amzn-trace-id", lambda), http.MethodPost, "/", nil) //nolint:staticcheck // Lambda's key
	r.Header["Traceparent"], r.Header["Tracestate"] = traceparent, tracestate
	if xray != "" {
		r.Header.Set("X-Amzn-Trace-Id", xray)
	}
	return r
}

// The standard's own examples and those of its test suite.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	for text, flags := range map[string]string{ // "": it is dropped
		"00-" + traceID + "-" + spanID + "-01":                  "01",
		"00-" + traceID + "-" + spanID + "-00":                  "00",
		"00-" + traceID + "-" + spanID + "-03":                  "03",
		"00-" + traceID + "-" + spanID + "-ff":                  "03", // flags that nobody knows
		" 00-" + traceID + "-" + spanID + "-01\t":               "01",
		"cc-" + traceID + "-" + spanID + "-01":                  "01", // a later version
		"cc-" + traceID + "-" + spanID + "-01-what-comes":       "01",
		"cc-" + traceID + "-" + spanID + "-01.what-comes":       "",
		"00-" + traceID + "-" + spanID + "-01-what-comes":       "",
		"00-" + traceID + "-" + spanID + "-01-":                 "",
		"ff-" + traceID + "-" + spanID + "-01":                  "",
		"0-" + traceID + "-" + spanID + "-01":                   "",
		".0-" + traceID + "-" + spanID + "-01":                  "",
		"00-" + strings.Repeat("0", 32) + "-" + spanID + "-01":  "",
		"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01": "",
		"00-" + strings.ToUpper(traceID) + "-" + spanID + "-01": "",
		"00-" + traceID + "-" + strings.ToUpper(spanID) + "-01": "",
		"0A-" + traceID + "-" + spanID + "-01":                  "",
		"00-" + traceID + "-" + spanID + "-0A":                  "",
		"00-" + traceID + "-" + spanID + "-1":                   "",
		"00-" + traceID + "-" + spanID + "-.0":                  "",
		"00-" + traceID + "-" + spanID:                          "",
		"00-" + traceID + "-" + spanID[1:] + "-01":              "",
		"00-" + traceID[1:] + "-" + spanID + "-01":              "",
		"00-." + traceID[1:] + "-" + spanID + "-01":             "",
		"00_" + traceID + "-" + spanID + "-01":                  "",
		"00-" + traceID + "_" + spanID + "-01":                  "",
		"00-" + traceID + "-" + spanID + "_01":                  "",
		"00-" + traceID + "0-" + spanID[1:] + "-01":             "",
		"":                             "",
		strings.Repeat("0", 1<<10):     "",
		"00-" + traceID + "-ü-01" + "": "",
	} {
		c := Of(request([]string{text}, []string{"a=1"}, "", ""))
		if flags == "" {
			check.That(t, c == Context{}, "%q is taken as %+v", text, c)
			continue
		}
		h := http.Header{}
		c.SetHeader(h)
		check.That(t, c.Trace == traceID && c.Parent == spanID && c.Span != spanID && regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(c.Span), "%q: %+v", text, c)
		check.Equal(t, h.Get("Traceparent"), fmt.Sprintf("00-%s-%s-%s", traceID, c.Span, flags), "%q", text)
		check.Equal(t, h.Get("Tracestate"), "a=1", "%q", text)
	}
	good := "00-" + traceID + "-" + spanID + "-01"
	check.That(t, Of(request([]string{good, good}, nil, "", "")) == Context{}, "two of them are taken")
	check.That(t, Of(request(nil, []string{"a=1"}, "", "")) == Context{}, "tracestate alone is taken")
	one, other := Of(request([]string{good}, nil, "", "")), Of(request([]string{good}, nil, "", ""))
	check.That(t, one.Span != other.Span, "two spans are one")
}

func TestTracestate(t *testing.T) {
	t.Parallel()
	many := func(n, size int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("k%02d=%s", i, strings.Repeat("v", size))
		}
		return strings.Join(list, ",")
	}
	for text, want := range map[string]string{
		"foo=1":                           "foo=1",
		"foo=1,bar=2":                     "foo=1,bar=2",
		"foo=1 \t , \t bar=2, ,":          "foo=1,bar=2",
		"t-1*/_@sys=a b!~":                "t-1*/_@sys=a b!~",
		"0t@sys=1":                        "0t@sys=1",
		"0t=1":                            "",
		"foo=1,foo=2":                     "",
		"foo":                             "",
		"foo =1":                          "",
		"FOO=1":                           "",
		"foo@=1":                          "",
		"@foo=1":                          "",
		"foo@@bar=1":                      "",
		"foo@bar@baz=1":                   "",
		"t@" + lower[:15] + "=1":          "",
		"foo=":                            "",
		"foo=1=2":                         "",
		"foo=\x01":                        "",
		"foo=ü":                           "",
		strings.Repeat("z", 256) + "=1":   strings.Repeat("z", 256) + "=1",
		strings.Repeat("z", 257) + "=1":   "",
		"foo=" + strings.Repeat("v", 256): "foo=" + strings.Repeat("v", 256),
		"foo=" + strings.Repeat("v", 257): "",
		many(32, 1):                       many(32, 1),
		many(33, 1):                       "",
		many(32, 60):                      many(7, 60), // whole members, from the end
		"a=" + strings.Repeat("v", 200) + "," + many(7, 60): many(7, 60), // long ones first
	} {
		c := Of(request([]string{"00-" + traceID + "-" + spanID + "-01"}, []string{text}, "", ""))
		check.Equal(t, c.State, want, "%.40q", text)
		check.That(t, c.Trace == traceID, "%.40q drops the trace, too", text)
	}
	several := Of(request([]string{"00-" + traceID + "-" + spanID + "-01"}, []string{"a=1", "b=2"}, "", ""))
	check.Equal(t, several.State, "a=1,b=2", "of two headers")
}

func TestXRay(t *testing.T) {
	t.Parallel()
	const root = "Root=1-5759e988-bd862e3fe1be46a994272793"
	for text, want := range map[string]string{
		root + ";Parent=53995c3f42cd8ad8;Sampled=1":             "53995c3f42cd8ad8",
		"Self=1-5;" + root + "; Sampled=1;Lineage=1:fc3b4ff1:0": "",
		"Sampled=1;" + root:                         "",
		root + ";Parent=53995c3f42cd8ad8;Sampled=0": "none",
		root:        "none",
		"Sampled=1": "none",
		"Root=1-5759e988-BD862e3fe1be46a994272793;Sampled=1": "none",
		"Root=1-5759e98-8bd862e3fe1be46a994272793;Sampled=1": "none",
		"Root=1-00000000-000000000000000000000000;Sampled=1": "none",
	} {
		for _, c := range []Context{Of(request(nil, nil, text, "")), Of(request(nil, nil, "", text)), Of(request([]string{"no"}, nil, root+";Sampled=0", text))} {
			if want == "none" {
				check.That(t, c == Context{}, "%q is taken as %+v", text, c)
				continue
			}
			check.That(t, c.Trace == "5759e988bd862e3fe1be46a994272793" && c.Parent == want && c.flags == sampled, "%q: %+v", text, c)
			h := http.Header{}
			c.SetXRay(h)
			check.Equal(t, h.Get("X-Amzn-Trace-Id"), root+";Parent="+c.Span+";Sampled=1", "%q", text)
		}
	}
	c := Of(request([]string{"00-" + traceID + "-" + spanID + "-00"}, nil, root+";Sampled=1", root+";Sampled=1"))
	check.That(t, c.Trace == traceID, "the caller's own trace comes first: %+v", c)
	var none http.Header
	Context{}.SetHeader(none)
	Context{}.SetXRay(none)
}
