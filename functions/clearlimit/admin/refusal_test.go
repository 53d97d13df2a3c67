package admin

import (
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// A refusal writes a line or two, whatever was sent, and by whomever.
func TestRefusalsAreShortInTheLog(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`"<ü`, 5000)
	const most = 1000
	for name, edit := range map[string]func(*rig, *events.APIGatewayProxyRequest){
		"404":          func(_ *rig, e *events.APIGatewayProxyRequest) { e.Path = "/admin/" + long },
		"405":          func(_ *rig, e *events.APIGatewayProxyRequest) { e.HTTPMethod = strings.Repeat("VERB", 5000) },
		"403":          func(_ *rig, e *events.APIGatewayProxyRequest) { e.RequestContext.Identity.UserArn = "arn:" + long },
		"no such user": func(_ *rig, e *events.APIGatewayProxyRequest) { e.Body = `{"user":"nobody","type":"all"}` },
		"a parameter": func(_ *rig, e *events.APIGatewayProxyRequest) {
			e.Body = `{` + "\"" + strings.Repeat("n", 20_000) + "\":1}"
		},
		"no JSON": func(_ *rig, e *events.APIGatewayProxyRequest) { e.Body = long },
		"the store": func(g *rig, _ *events.APIGatewayProxyRequest) {
			g.net.Plan = faults.Always(faults.Throttled)
			g.handler.Buckets = g.shortTempered()
		},
		"header values": func(_ *rig, e *events.APIGatewayProxyRequest) { e.MultiValueHeaders["Content-Type"] = []string{long} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			e := g.event("POST", "/admin/limits/clear", `{"user":"ann","type":"all"}`)
			edit(g, &e)
			a := g.send(e)
			check.Must(t, a.status >= 400, "%d %s", a.status, a.body)
			n := len(g.log.String())
			check.That(t, n <= most && n != 0, "%d bytes: %.2000s", n, g.log)
		})
	}
}

// An event that is no request is answered, too.
func TestUnreadableEvents(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for name, edit := range map[string]func(*events.APIGatewayProxyRequest){
		"a method with a blank": func(e *events.APIGatewayProxyRequest) { e.HTTPMethod = "PO ST" },
		"a body of no base64":   func(e *events.APIGatewayProxyRequest) { e.Body, e.IsBase64Encoded = "!", true },
	} {
		e := g.event("POST", "/admin/limits/clear", `{"user":"ann","type":"all"}`)
		edit(&e)
		a := g.send(e)
		check.That(t, a.status == 400 && strings.Contains(a.body, `"code":"invalid_json"`) && a.header.Get("X-Request-Id") != "" && a.header.Get("Cache-Control") == "no-store", "%s: %d %v %s", name, a.status, a.header, a.body)
		lines := g.logged("admin request")
		check.That(t, lines[len(lines)-1]["outcome"] == "invalid_json" && lines[len(lines)-1]["level"] == "WARN", "%s: not in the log", name)
	}
}
