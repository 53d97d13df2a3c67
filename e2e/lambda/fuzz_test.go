package lambda

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// counted counts requests on their way.
type counted struct{ n atomic.Int64 }

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	// The fuse is read beside everything else, when it is due.
	if r.Header.Get("X-Amz-Target") != "DynamoDB_20120810.GetItem" {
		c.n.Add(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// entrance is the adapter with the real handler behind it, on a real store and a model
// that speaks the wire format.
type entrance struct {
	invoke func(context.Context, *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error)
	model  *upstream.Upstream
	store  counted
}

// newEntrance makes an entrance whose limits nobody reaches.
func newEntrance(f *testing.F) *entrance {
	f.Helper()
	n := &entrance{model: upstream.New(upstream.Options{})}
	server := httptest.NewServer(n.model)
	f.Cleanup(server.Close)
	yaml := strings.NewReplacer("STAGE", server.URL, "capacity: 20000,", "capacity: 2000000000,", "capacity: 20,", "capacity: 2000000,",
		`"1.00"`, `"1000.00"`, `"5.00"`, `"5000.00"`).Replace(testPolicy)
	p, err := policy.Parse([]byte(yaml))
	check.OK(f, err)
	db, table := enginetest.Table(f, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: &n.store} })
	old := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	f.Cleanup(func() { slog.SetDefault(old) })
	h, err := chatapi.Build(context.Background(), chatapi.Parts{Policy: p, DynamoDB: db, Bucket: bucket.Options{Table: table}, Log: slog.Default(),
		Secret: func(context.Context, policy.Secret) (string, error) { return fingerprintSecret, nil }})
	check.OK(f, err)
	n.invoke = lambdahttp.Stream(h)
	return n
}

// check sends an event. There must be a valid response, in the envelope if it is an
// error, and what is refused before the limits may reach neither the model nor the
// store.
func (n *entrance) check(t *testing.T, e *events.APIGatewayProxyRequest) {
	t.Helper()
	calls, _ := n.model.Totals()
	writes := n.store.n.Load()
	res, err := n.invoke(t.Context(), e)
	check.OK(t, err)
	raw, err := io.ReadAll(res) // prelude and body, as the runtime sends them
	check.OK(t, err)
	check.OK(t, res.Close())
	made, _ := n.model.Totals()
	checkAnswer(t, e, raw, made-calls, n.store.n.Load()-writes)
}

// FuzzEvent sends whatever bytes a gateway might.
func FuzzEvent(f *testing.F) {
	files, err := filepath.Glob("../../internal/lambdahttp/testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no events", err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		check.OK(f, err)
		f.Add(raw)
	}
	n := newEntrance(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e *events.APIGatewayProxyRequest
		if json.Unmarshal(data, &e) == nil { // else the runtime says so by itself
			n.check(t, e)
		}
	})
}

// FuzzRequest sends whatever a client might make the gateway send.
func FuzzRequest(f *testing.F) {
	const path, media = "/v1/chat/completions", "application/json"
	for _, body := range []string{
		chat("ask", question, false), chat("ask", question, true), chat("ask", "[[fail:cut]]", true), chat("cv", question, false),
		`{"model":"ask","messages":[{"role":"user","content":"a"}],"n":2}`, `{"model":"ask","messages":[{"role":"user","content":"a"}],"MAX_TOKENS":1}`,
		`{"model":"ask","messages":[{"role":"user","content":"a"}],"max_tokens":1e400}`, `{`, ``,
	} {
		f.Add("POST", path, media, "", "", body, false)
	}
	f.Add("POST", path, media, "", "", "e30=", true)
	f.Add("POST", path, media, "", "", "!", true)
	f.Add("POST", path, "text/plain", "", "", "{}", false)
	f.Add("POST", path, media, "Bearer eyJhbGciOiJub25lIn0.e30.", "", "{}", false)
	f.Add("OPTIONS", path, "", "", "https://app.example.com", "", false)
	f.Add("GET", "/v1/models", "", "Bearer anonymous", "", "", false)
	f.Add("GET", "/v1/limits", "", "", "", "", false)
	f.Add("GET", "/v1/challenge", "", "", "", "", false)
	f.Add("GET", "/v1/100%", "", "", "", "", false)
	f.Add("GET", "/v1%2Fmodels", "", "", "", "", false)
	n := newEntrance(f)
	f.Fuzz(func(t *testing.T, method, path, media, authorization, origin, body string, encoded bool) {
		e := &events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, Body: body, IsBase64Encoded: encoded, MultiValueHeaders: map[string][]string{}}
		for name, value := range map[string]string{"Content-Type": media, "Authorization": authorization, "Origin": origin} {
			if value != "" {
				e.MultiValueHeaders[name] = []string{value}
			}
		}
		e.RequestContext.Identity.SourceIP = "203.0.113.7"
		n.check(t, e)
	})
}

// refusals are the statuses of what is refused before the limits; 403 is one unless a
// challenge is asked for.
var refusals = []int{400, 401, 403, 404, 405, 413, 415}

// FuzzHeaders sends whatever headers a caller may, a line each.
func FuzzHeaders(f *testing.F) {
	const from = "X-Forwarded-For: 198.51.100.1\n"
	for _, lines := range []string{
		"", "Authorization: Bearer anonymous\nAuthorization: Bearer a.b.c", "Authorization: Basic x", "Authorization: Bearer sk-proj-x", "authorization: bearer  x",
		from + "CloudFront-Viewer-Address: 198.51.100.1:1\nCloudFront-Viewer-JA4-Fingerprint: x\nX-Origin-Secret: y", "CloudFront-Viewer-Address: :\nCloudFront-Viewer-TLS: ::",
		"X-Challenge-Pass: DlRUYX1u-ll3P4Kknz6qug", "X-Challenge-Response: e30=", "X-Visitor-Address: 198.51.100.1\nX-Visitor-Id: a\nX-Visitor-Tier: user",
		"Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\nTracestate: a=1,a=2", "X-Amzn-Trace-Id: Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Sampled=1",
		"RateLimit: \"tokens\";r=5\nRetry-After: -1", "Content-Type: application/json; charset=\xff", "Content-Type: application/json\nContent-Type: text/plain", "Content-Length: -1", "Content-Length: 1e9\nTransfer-Encoding: chunked",
		"Content-Encoding: gzip", "Expect: 100-continue", "Origin: null\nAccess-Control-Request-Headers: *", "Host: evil.example\nX-Forwarded-Proto: http", "X-Request-Id: <script>", "Idempotency-Key: x\nX-Stainless-Retry-Count: 9", ":\n \n\x00: \r",
	} {
		f.Add("POST", "/v1/chat/completions", lines)
		f.Add("GET", "/v1/limits", lines)
	}
	n := newEntrance(f)
	f.Fuzz(func(t *testing.T, method, path, lines string) {
		e := &events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, Body: chat("ask", question, false), MultiValueHeaders: map[string][]string{"Content-Type": {"application/json"}}}
		for line := range strings.SplitSeq(lines, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			e.MultiValueHeaders[name] = append(e.MultiValueHeaders[name], value)
		}
		e.RequestContext.Identity.SourceIP = "203.0.113.7"
		n.check(t, e)
	})
}

func checkAnswer(t *testing.T, e *events.APIGatewayProxyRequest, raw []byte, calls, writes int64) {
	t.Helper()
	head, body, ok := bytes.Cut(raw, make([]byte, 8))
	var prelude struct {
		StatusCode        int         `json:"statusCode"`
		MultiValueHeaders http.Header `json:"multiValueHeaders"`
	}
	if err := json.Unmarshal(head, &prelude); err != nil || !ok || len(head) > 16<<10 {
		t.Fatalf("the prelude is %q: %v", head, err)
	}
	status := prelude.StatusCode
	check.That(t, status >= 200 && status <= 599 && status != 500, "status %d: %s", status, body)
	if e == nil || e.HTTPMethod == http.MethodHead || status == http.StatusNoContent {
		check.That(t, calls == 0, "%d calls", calls)
		return
	}
	if status >= 400 {
		var envelope struct {
			Error *struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal(body, &envelope); err != nil || envelope.Error == nil || envelope.Error.Message == "" || envelope.Error.Type == "" || envelope.Error.Code == "" {
			t.Errorf("%d without an envelope: %s", status, body)
		}
		check.That(t, prelude.MultiValueHeaders.Get("X-Should-Retry") != "", "%d: %v", status, prelude.MultiValueHeaders)
	}
	check.That(t, !slices.Contains(refusals, status) || calls+writes <= 0, "%d after %d calls of the model and %d of the store: %s", status, calls, writes, body)
	check.That(t, (status != http.StatusTooManyRequests || calls == 0) && calls <= 1, "%d with %d calls", status, calls)
}
