package lambdahttp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func loadEvent(t testing.TB, name string) *events.APIGatewayProxyRequest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	check.OK(t, err)
	var e *events.APIGatewayProxyRequest
	check.OK(t, json.Unmarshal(data, &e))
	return e
}

func TestNewRequestFromRealEvents(t *testing.T) {
	const (
		host = "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"
		peer = "203.0.113.7:0"
	)
	type request struct {
		Method, URI, Path, Host, Peer, Body string
	}
	tests := []struct {
		event string
		want  request
	}{
		{"stage_prefix", request{"POST", "/v1/chat/completions", "/v1/chat/completions", host, peer, `{"model":"docqa"}`}},
		{"base64", request{"POST", "/v1/chat/completions", "/v1/chat/completions", host, peer, "\x00\xff\x7f{}"}},
		{"multi_value", request{"GET", "/v1/models?empty=&q=50%25+%26+more%3F&tag=b&tag=a", "/v1/models", host, peer, ""}},
		{"null_headers", request{"POST", "/v1/chat/completions", "/v1/chat/completions", "testPrefix.testDomainName", "test-invoke-source-ip:0", ""}},
		{"encoded_path", request{"GET", "/v1/a%2Fb%20c%3Fd/caf%C3%A9", "/v1/a/b c?d/café", host, peer, ""}},
		{"decoded_path", request{"GET", "/v1/100%25%20sure%3F/a%23b", "/v1/100% sure?/a#b", host, peer, ""}},
		{"custom_domain", request{"GET", "/v1/models", "/v1/models", "ai.example.com", peer, ""}},
		{"base64_json", request{"POST", "/v1/chat/completions", "/v1/chat/completions", host, peer, `{"model":"docqa","messages":[{"role":"user","content":"Grüße"}]}`}},
		{"single_valued", request{"POST", "/v1/chat/completions?q=1", "/v1/chat/completions", host, peer, `{"model":"docqa"}`}},
		{"preflight", request{"OPTIONS", "/v1/chat/completions", "/v1/chat/completions", host, peer, ""}},
		{"cloudfront", request{"POST", "/v1/chat/completions", "/v1/chat/completions", host, "64.252.70.1:0", `{"model":"docqa"}`}},
		{"bare_context", request{"POST", "/v1/chat/completions", "/v1/chat/completions", host, ":0", `{"model":"docqa"}`}},
		{"no_context", request{"GET", "/v1/models", "/v1/models", "", ":0", ""}},
		{"iam", request{"POST", "/admin/limits/clear", "/admin/limits/clear", host, peer, `{"user":"123","type":"all"}`}},
		{"iam_role", request{"GET", "/admin/limits?email=ann%2Btest%40example.com", "/admin/limits", host, peer, ""}},
		{"iam_test_invoke", request{"POST", "/admin/limits/clear", "/admin/limits/clear", "testPrefix.testDomainName", "test-invoke-source-ip:0", `{"user":"123","type":"all"}`}},
		{"ipv6", request{"POST", "/v1/chat/completions", "/v1/chat/completions", host, "[2001:db8:85a3::8a2e:370:7334]:0", `{"model":"docqa"}`}},
	}
	for _, tt := range tests {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			e := loadEvent(t, tt.event)
			r, err := NewRequest(t.Context(), e)
			check.OK(t, err)
			body, err := io.ReadAll(r.Body)
			check.OK(t, err)
			got := request{r.Method, r.RequestURI, r.URL.Path, r.Host, r.RemoteAddr, string(body)}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			check.That(t, r.URL.RequestURI() == r.RequestURI && !r.URL.IsAbs(), "URL is %#v, want the parts of %s alone", r.URL, r.RequestURI)
			check.Equal(t, r.ContentLength, int64(len(body)), "ContentLength of %d bytes", len(body))
			if c, ok := RequestContext(r.Context()); !ok || !cmp.Equal(*c, e.RequestContext) {
				t.Errorf("RequestContext = %v, %v", c, ok)
			}
		})
	}
}

func TestNewRequestHeaders(t *testing.T) {
	t.Parallel()
	r, err := NewRequest(t.Context(), loadEvent(t, "multi_value"))
	check.OK(t, err)
	got := r.Header["Accept-Language"]
	check.That(t, cmp.Equal(got, []string{"de", "en"}), "Accept-Language = %q", got)
	check.That(t, r.Header.Get("Host") == "", "Host is among the headers; net/http keeps it in Request.Host alone")
	if c, _ := RequestContext(r.Context()); c.Identity.SourceIP != "203.0.113.7" {
		t.Errorf("the client's header set the source address to %s", c.Identity.SourceIP)
	}

	r, err = NewRequest(t.Context(), loadEvent(t, "base64"))
	check.OK(t, err)
	check.Equal(t, r.Header.Get("Content-Length"), "5", "Content-Length of 5 decoded bytes")
	if _, ok := RequestContext(t.Context()); ok {
		t.Error("a context without a request has a RequestContext")
	}
}

// Names that differ by case alone must not change places from call to call:
// which of two Authorization headers counts would be a matter of luck.
func TestNewRequestHeaderOrder(t *testing.T) {
	t.Parallel()
	for range 20 {
		r, err := NewRequest(t.Context(), &events.APIGatewayProxyRequest{
			HTTPMethod: "GET",
			Path:       "/",
			Headers:    map[string]string{"authorization": "c", "Authorization": "b", "AUTHORIZATION": "a"},
		})
		check.OK(t, err)
		got := r.Header["Authorization"]
		check.Must(t, cmp.Equal(got, []string{"a", "b", "c"}), "order %q", got)
	}
}

func TestNewRequestPaths(t *testing.T) {
	t.Parallel()
	tests := []struct{ event, path, escaped string }{
		{"", "/", "/"},
		{"v1/models", "/v1/models", "/v1/models"},
		{"//evil.example/x", "//evil.example/x", "//evil.example/x"},
		{"/a%20b", "/a b", "/a%20b"},
		{"/a b", "/a b", "/a%20b"},
		{"/100%", "/100%", "/100%25"},
		{"/%zz%41", "/%zz%41", "/%25zz%2541"},
		{"/a?x=1#y", "/a?x=1#y", "/a%3Fx=1%23y"},
		{"/a%2e%2e/b", "/a../b", "/a%2e%2e/b"},
		{"/\x00\n", "/\x00\n", "/%00%0A"},
	}
	for _, tt := range tests {
		r, err := NewRequest(t.Context(), &events.APIGatewayProxyRequest{
			HTTPMethod:            "GET",
			Path:                  tt.event,
			QueryStringParameters: map[string]string{"k": "v"},
		})
		if err != nil {
			t.Errorf("%q: %v", tt.event, err)
			continue
		}
		if r.URL.Path != tt.path || r.URL.EscapedPath() != tt.escaped || r.URL.RawQuery != "k=v" {
			t.Errorf("%q became path %q, escaped %q, query %q", tt.event, r.URL.Path, r.URL.EscapedPath(), r.URL.RawQuery)
		}
		want := tt.escaped + "?k=v"
		check.That(t, r.RequestURI == want, "%q: RequestURI %q, want %q", tt.event, r.RequestURI, want)
	}
}

// Only what the gateway itself put in front of a path is taken off it.
func TestNewRequestBasePaths(t *testing.T) {
	t.Parallel()
	tests := []struct{ resource, proxy, event, path string }{
		{"/v1/{proxy+}", "models", "/v1/models", "/v1/models"},
		{"/v1/{proxy+}", "models", "/fuse/v1/models", "/v1/models"},
		{"/v1/{proxy+}", "v1/models", "/v1/v1/models", "/v1/v1/models"},
		{"/v1/{proxy+}", "v1/models", "/v1/v1/v1/models", "/v1/v1/models"},
		{"/v1/{proxy+}", "a%2Fb", "/fuse/v1/a%2Fb", "/v1/a/b"},
		{"/v1/{proxy+}", "a/b", "/fuse/v1/a%2Fb", "/fuse/v1/a/b"}, // not as it is spelt: left alone
		{"/v1/limits", "", "/fuse/v1/limits", "/v1/limits"},
		{"/{proxy+}", "v1/models", "/v1/models", "/v1/models"},
		{"", "", "/v1/models", "/v1/models"},
		{"models", "", "/v1/models", "/v1/models"},
		{"/v1/{proxy+}", "models", "/v1/models/", "/v1/models/"},
		{"/v1/{proxy+}", "models", "/fuse/v1/models/", "/v1/models/"},
		{"/v1/{proxy+}", "models", "/fuse/v1//models", "/v1//models"},
		{"/{proxy+}", "v1/models", "/fuse//v1/models", "/v1/models"},
	}
	for _, tt := range tests {
		r, err := NewRequest(t.Context(), &events.APIGatewayProxyRequest{HTTPMethod: "GET", Path: tt.event, Resource: tt.resource,
			PathParameters: map[string]string{"proxy": tt.proxy}})
		check.OK(t, err)
		check.Equal(t, r.URL.Path, tt.path, "%s of %s", tt.event, tt.resource)
	}
}

func TestNewRequestRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]*events.APIGatewayProxyRequest{
		"null event":     nil,
		"no method":      {Path: "/"},
		"invalid method": {Path: "/", HTTPMethod: "GE T"},
		"bad base64":     {Path: "/", HTTPMethod: http.MethodPost, Body: "%%%", IsBase64Encoded: true},
	}
	for name, e := range tests {
		if r, err := NewRequest(t.Context(), e); err == nil {
			t.Errorf("%s: %v", name, r)
		}
	}
}

func FuzzNewRequest(f *testing.F) {
	addEvents(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e *events.APIGatewayProxyRequest
		if json.Unmarshal(data, &e) != nil {
			return
		}
		r, err := NewRequest(t.Context(), e)
		if err != nil {
			return
		}
		u, err := url.ParseRequestURI(r.RequestURI) // as http.Server does
		check.Must(t, err == nil, "RequestURI %q: %v", r.RequestURI, err)
		check.Must(t, u.Host == "" && u.Path == r.URL.Path && u.RawQuery == r.URL.RawQuery, "RequestURI %q was split again", r.RequestURI)
		if body, err := io.ReadAll(r.Body); err != nil || int64(len(body)) != r.ContentLength {
			t.Fatalf("body of %d bytes, Content-Length %d: %v", len(body), r.ContentLength, err)
		}
	})
}

func addEvents(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no events", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		check.OK(f, err)
		f.Add(data)
	}
	f.Add([]byte(`null`))
	f.Add([]byte(`{"httpMethod":"POST","body":"!","isBase64Encoded":true}`))
	f.Add([]byte(`{"httpMethod":"HEAD","path":"?#%","multiValueHeaders":{"":null,"\n":["\r\n"]}}`))
}
