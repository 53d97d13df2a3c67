package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// eventOf returns the event that the function got, nil if it was not called.
func eventOf(t *testing.T, opts Options, r *http.Request) (*events.APIGatewayProxyRequest, *httptest.ResponseRecorder) {
	t.Helper()
	var got *events.APIGatewayProxyRequest
	g := New(opts, func(_ context.Context, e *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
		got = e
		return &events.APIGatewayProxyStreamingResponse{StatusCode: 200}, nil
	})
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return got, w
}

func TestEvent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 3, 33, 4, 123e6, time.FixedZone("CET", 3600))
	r := httptest.NewRequest("POST", "/v1/chat/completions?b=2&a=1&a=%26", strings.NewReader(`{"model":"docqa"}`))
	r.Host = "127.0.0.1:8787"
	r.RemoteAddr = "203.0.113.7:4711"
	r.Header = http.Header{
		"User-Agent":      {"curl/8.9.1"},
		"Accept-Language": {"de", "en"},
		"X-Forwarded-For": {"198.51.100.99"},
	}
	got, _ := eventOf(t, Options{Stage: "prod", Now: func() time.Time { return now }}, r)

	c := &got.RequestContext
	check.That(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(c.RequestID),
		"requestId %q is no UUID", c.RequestID)
	check.That(t, regexp.MustCompile(`^[0-9A-Za-z+/]{15}=$`).MatchString(c.ExtendedRequestID), "extendedRequestId %q", c.ExtendedRequestID)
	c.RequestID, c.ExtendedRequestID = "", ""
	want := &events.APIGatewayProxyRequest{
		Resource:   "/v1/{proxy+}",
		Path:       "/v1/chat/completions",
		HTTPMethod: "POST",
		Headers: map[string]string{
			"User-Agent": "curl/8.9.1", "Accept-Language": "en", "Host": "127.0.0.1:8787",
			"X-Forwarded-For": "198.51.100.99, 203.0.113.7", "X-Forwarded-Proto": "http", "X-Forwarded-Port": "8787",
		},
		MultiValueHeaders: map[string][]string{
			"User-Agent": {"curl/8.9.1"}, "Accept-Language": {"de", "en"}, "Host": {"127.0.0.1:8787"},
			"X-Forwarded-For": {"198.51.100.99, 203.0.113.7"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Port": {"8787"},
		},
		QueryStringParameters:           map[string]string{"a": "&", "b": "2"},
		MultiValueQueryStringParameters: map[string][]string{"a": {"1", "&"}, "b": {"2"}},
		PathParameters:                  map[string]string{"proxy": "chat/completions"},
		RequestContext: events.APIGatewayProxyRequestContext{
			AccountID: "123456789012", ResourceID: "local0", Stage: "prod", DomainName: "127.0.0.1:8787", DomainPrefix: "local00000",
			Protocol: "HTTP/1.1", Identity: events.APIGatewayRequestIdentity{SourceIP: "203.0.113.7", UserAgent: "curl/8.9.1"},
			ResourcePath: "/v1/{proxy+}", Path: "/prod/v1/chat/completions", HTTPMethod: "POST",
			RequestTime: "30/Nov/2026:02:33:04 +0000", RequestTimeEpoch: now.UnixMilli(), APIID: "local00000",
		},
		Body: `{"model":"docqa"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEventPaths(t *testing.T) {
	t.Parallel()
	tests := []struct{ stage, target, path, public string }{
		{"prod", "/v1/models", "/v1/models", "/prod/v1/models"},
		{"prod", "/prod/v1/models", "/v1/models", "/prod/v1/models"},
		{"prod", "/production", "/production", "/prod/production"},
		{"", "/v1/models", "/v1/models", "/v1/models"},
		{"", "/", "/", "/"},
		{"", "/v1/a%2Fb%20c%3Fd", "/v1/a%2Fb%20c%3Fd", "/v1/a%2Fb%20c%3Fd"},
	}
	for _, tt := range tests {
		e, _ := eventOf(t, Options{Stage: tt.stage}, httptest.NewRequest("GET", tt.target, nil))
		check.That(t, e.Path == tt.path && e.RequestContext.Path == tt.public,
			"stage %q, %s: path %s, public path %s", tt.stage, tt.target, e.Path, e.RequestContext.Path)
		check.That(t, e.QueryStringParameters == nil && e.MultiValueHeaders != nil, "%s: not the real event's nulls", tt.target)
	}
}

func TestEventBodies(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{"": "", "grüße": "grüße", "\xff\x00": "/wA="} {
		e, _ := eventOf(t, Options{}, httptest.NewRequest("POST", "/", strings.NewReader(body)))
		check.That(t, e.Body == want && e.IsBase64Encoded == (want == "/wA="), "%q: %q, base64 %v", body, e.Body, e.IsBase64Encoded)
	}
}

func TestSourceAddress(t *testing.T) {
	t.Parallel()
	for peer, want := range map[string]string{
		"203.0.113.7:1":          "203.0.113.7",
		"[2001:db8::1]:1":        "2001:db8::1",
		"[::ffff:203.0.113.7]:1": "203.0.113.7",
		"[fe80::1%eth0]:1":       "fe80::1",
		"@":                      "@", // a Unix socket's peer
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", "198.51.100.99")
		if e, _ := eventOf(t, Options{}, r); e.RequestContext.Identity.SourceIP != want {
			t.Errorf("peer %s became %s", peer, e.RequestContext.Identity.SourceIP)
		}
	}
	hook := func(r *http.Request) string { return r.Header.Get("X-Demo-Address") }
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Demo-Address", "192.0.2.44")
	e, _ := eventOf(t, Options{SourceIP: hook}, r)
	got := e.RequestContext.Identity.SourceIP
	check.That(t, got == "192.0.2.44" && e.Headers["X-Forwarded-For"] == got, "hook's address became %s, X-Forwarded-For %s", got, e.Headers["X-Forwarded-For"])
}

func TestForwardedOverTLS(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = "ai.example.com"
	r.TLS = &tls.ConnectionState{}
	r.Header.Set("X-Forwarded-Proto", "http")
	e, _ := eventOf(t, Options{}, r)
	check.That(t, e.Headers["X-Forwarded-Proto"] == "https" && e.Headers["X-Forwarded-Port"] == "443", "%v", e.Headers)
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	opts := Options{Identity: func(r *http.Request) (events.APIGatewayRequestIdentity, error) {
		body, err := io.ReadAll(r.Body) // a signature covers it
		if err != nil || string(body) != "signed" {
			return events.APIGatewayRequestIdentity{}, errors.New("missing authentication token")
		}
		return events.APIGatewayRequestIdentity{UserArn: "arn:aws:iam::123456789012:user/support", SourceIP: "ignored"}, nil
	}}
	e, _ := eventOf(t, opts, httptest.NewRequest("POST", "/admin/limits/clear", strings.NewReader("signed")))
	id := e.RequestContext.Identity
	check.That(t, id.UserArn == "arn:aws:iam::123456789012:user/support" && id.SourceIP == "192.0.2.1" && e.Body == "signed", "identity %+v, body %q", id, e.Body)
	e, w := eventOf(t, opts, httptest.NewRequest("POST", "/admin/limits/clear", strings.NewReader("forged")))
	check.That(t, e == nil && w.Code == 403 && w.Body.String() == `{"message":"missing authentication token"}`+"\n", "%v, %d %s", e, w.Code, w.Body)
}

// What a handler sees behind both must be what the client sent.
func TestThroughBoth(t *testing.T) {
	t.Parallel()
	_, url := serve(t, Options{Stage: "prod"}, func(w http.ResponseWriter, r *http.Request) {
		c, ok := lambdahttp.RequestContext(r.Context())
		check.That(t, ok && c.Identity.SourceIP == "127.0.0.1" && strings.HasPrefix(r.RemoteAddr, "127.0.0.1:"), "source address %v, RemoteAddr %s", c, r.RemoteAddr)
		w.Header()["X-Method"] = []string{r.Method, r.Host, r.URL.EscapedPath(), r.URL.Query().Get("q")}
		io.Copy(w, r.Body)
	})
	r, err := http.NewRequest("PUT", url+"/prod/v1/a%2Fb?q=%26%20b", strings.NewReader("\x00\xff binary"))
	check.OK(t, err)
	r.Host = "ai.example.com"
	r.Header.Set("X-Forwarded-For", "198.51.100.99")
	resp, err := http.DefaultClient.Do(r)
	check.OK(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check.That(t, string(body) == "\x00\xff binary" && err == nil, "body %q, %v", body, err)
	if diff := cmp.Diff([]string{"PUT", "ai.example.com", "/v1/a%2Fb", "& b"}, resp.Header["X-Method"]); diff != "" {
		t.Error(diff)
	}
}
