package provider

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/trace"
)

// The caller's trace goes to the provider, of AWS in X-Ray's form, and what the provider
// calls the request is told, of an answer and of a refusal alike.
func TestTraceAndRequestID(t *testing.T) {
	t.Parallel()
	in := &http.Request{Header: http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Tracestate": {"a=1"}}}
	conform(t, func(t *testing.T, d dialect, stream bool) {
		for _, tt := range []struct {
			name, header, id string
			status           int
			want             string // told
		}{
			{"OpenAI's", "X-Request-Id", "req_4711", 200, "req_4711"},
			{"Anthropic's", "Request-Id", "req_011C.P-T", 200, "req_011C.P-T"},
			{"AWS's", "X-Amzn-Requestid", "8a8f3c4e-0000-4000-8000-000000000000", 400, "8a8f3c4e-0000-4000-8000-000000000000"},
			{"the longest", "X-Request-Id", strings.Repeat("x", 128), 529, strings.Repeat("x", 128)},
			{"too long", "X-Request-Id", strings.Repeat("x", 129), 200, ""},
			{"no word", "X-Request-Id", "what you asked", 200, ""},
			{"none", "X-Other", "req_4711", 200, ""},
		} {
			tr := trace.Of(in)
			var got http.Header
			address, _ := d.serve(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header
				w.Header().Set(tt.header, tt.id)
				if tt.status != http.StatusOK {
					w.WriteHeader(tt.status)
					io.WriteString(w, d.refusal)
					return
				}
				d.answer(stream, d.all(stream))(w, r)
			})
			p := d.make(t, address, nil)
			told := ""
			req := request(stream)
			req.Trace, req.Answered = tr, func(id string) { told += id }
			answer, err := p.Call(t.Context(), req)
			if err == nil {
				answer.Close()
			}
			want := http.Header{"Traceparent": {"00-" + tr.Trace + "-" + tr.Span + "-01"}, "Tracestate": {"a=1"}}
			if d.name == "bedrock" {
				want = http.Header{"X-Amzn-Trace-Id": {"Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Parent=" + tr.Span + ";Sampled=1"}}
			}
			for _, name := range []string{"Traceparent", "Tracestate", "X-Amzn-Trace-Id"} {
				if got.Get(name) != want.Get(name) {
					t.Errorf("%s: sent %s %q, want %q", tt.name, name, got.Get(name), want.Get(name))
				}
			}
			if told != tt.want || (err != nil) != (tt.status != http.StatusOK) {
				t.Errorf("%s: told %q, want %q, error %v", tt.name, told, tt.want, err)
			}
			if u, _ := url.Parse(address); Server(p) != u.Hostname() || Server(WithBreaker(p)) != u.Hostname() {
				t.Errorf("the server is %q, want %s", Server(p), u.Hostname())
			}
			req.Trace, req.Answered = trace.Context{}, nil // nothing is told of, and nobody listens
			if answer, err := p.Call(t.Context(), req); err == nil {
				answer.Close()
			}
			if got.Get("Traceparent")+got.Get("Tracestate")+got.Get("X-Amzn-Trace-Id") != "" {
				t.Errorf("a trace is made up: %v", got)
			}
		}
	})
}
