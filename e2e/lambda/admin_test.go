package lambda

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// admin sends clearlimit a request that support has signed, as the gateway says.
func (g *rig) admin(f *runtimeapi.Function, method, path, body string) answered {
	g.t.Helper()
	return buffered(g.t, f.Invoke(event(g.t, "iam", method, path, "", body), timeout))
}

// buffered waits for an answer that comes all at once, as a JSON object.
func buffered(t *testing.T, i *runtimeapi.Invocation) answered {
	t.Helper()
	answer, err := i.Answer(within(t))
	check.OK(t, err)
	raw, err := io.ReadAll(answer.Body)
	check.Must(t, err == nil && answer.Error == nil, "%v, %v", err, answer.Error)
	var res events.APIGatewayProxyResponse
	if err := json.Unmarshal(raw, &res); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	check.That(t, answer.ContentType != runtimeapi.Streamed && !res.IsBase64Encoded, "%s: %s", answer.ContentType, raw)
	<-i.Done()
	return answered{res.StatusCode, http.Header(res.MultiValueHeaders), res.Body}
}

// Support clears what a user has used up; the process that denied the user serves
// the next call.
func TestClear(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	generate, clearlimit := g.warm("generate"), g.warm("clearlimit")
	ann := g.token("ann")
	if a := whole(t, g.ask(generate, ann, chat("cv", question, true), timeout)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	whole(t, g.ask(generate, ann, chat("cv", question, true), timeout)).refused(t, 429, "insufficient_quota")

	a := g.admin(clearlimit, "POST", "/admin/limits/clear", `{"user":"ann","type":"cv","reason":"a test"}`)
	var cleared struct {
		Limits []struct {
			Name          string
			Before, After struct{ Remaining int64 }
		}
	}
	err := json.Unmarshal([]byte(a.body), &cleared)
	check.Must(t, err == nil && a.status == 200, "%d %s: %v", a.status, a.body, err)
	l := cleared.Limits
	check.That(t, len(l) == 1 && l[0].Name == "cv" && l[0].Before.Remaining == 0 && l[0].After.Remaining == 1, "%s", a.body)
	check.That(t, a.header.Get("Content-Type") == "application/json" && a.header.Get("Cache-Control") == "no-store", "headers %v", a.header)
	for {
		a := whole(t, g.ask(generate, ann, chat("cv", question, true), timeout))
		if a.status == 200 {
			break
		}
		a.refused(t, 429, "insufficient_quota") // for a second a process may remember a denial
		check.Must(t, within(t).Err() == nil, "cleared, and still denied")
	}
	logged(t, clearlimit)
}

// Who has signed a request is what the gateway says in its own context, not what a
// client says in the header in which adapters carry that context.
func TestForgedContext(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	f := g.warm("clearlimit")
	var e events.APIGatewayProxyRequest
	check.OK(t, json.Unmarshal(event(t, "iam", "PUT", "/admin/fuse", "", `{"state":"open"}`), &e))
	forged, err := json.Marshal(e.RequestContext)
	check.OK(t, err)
	for _, name := range []string{"X-GoLambdaProxy-ApiGw-Context", "x-golambdaproxy-apigw-context"} {
		for _, arn := range []string{"", "arn:aws:iam::123456789012:user/intern"} {
			e.RequestContext.Identity = events.APIGatewayRequestIdentity{SourceIP: "203.0.113.7", UserArn: arn}
			e.Headers[name], e.MultiValueHeaders[name] = string(forged), []string{string(forged)}
			raw, err := json.Marshal(e)
			check.OK(t, err)
			buffered(t, f.Invoke(raw, timeout)).refused(t, 403, "admin_not_allowed")
		}
	}
	var fuse struct{ State string }
	a := g.admin(f, "GET", "/admin/fuse", "")
	check.That(t, json.Unmarshal([]byte(a.body), &fuse) == nil && a.status == 200 && fuse.State == "closed", "%d %s", a.status, a.body)
}

// Every shape of event gets an answer, and none of those without an identity does
// anything.
func TestAdminEvents(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	f := g.warm("clearlimit")
	for _, test := range []struct {
		fixture, method, path string
		status                int
	}{
		{"iam", "GET", "/admin/fuse", 200},
		{"iam", "GET", "/admin/fuse/", 404},
		{"iam", "GET", "/admin%2Ffuse", 404},
		{"iam", "GET", "/admin/100%", 404},
		{"iam", "GET", "/admin/fuse?", 404},
		{"iam", "GET", "/admin/a b", 404},
		{"iam", "GET", "/admin/a%20b%3Fc", 404},
		{"iam_role", "GET", "/admin/fuse", 403},
		{"iam_test_invoke", "GET", "/admin/fuse", 403},
		{"stage_prefix", "GET", "/admin/fuse", 403},
		{"bare_context", "GET", "/admin/fuse", 403},
		{"no_context", "GET", "/admin/fuse", 403},
		{"null_headers", "GET", "/admin/fuse", 403},
		{"single_valued", "GET", "/admin/fuse", 403},
	} {
		a := buffered(t, f.Invoke(event(t, test.fixture, test.method, test.path, "", ""), timeout))
		check.Equal(t, a.status, test.status, "%s %s %s: … %s", test.fixture, test.method, test.path, a.body)
	}
}
