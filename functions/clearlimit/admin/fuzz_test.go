package admin

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// changing is a write to the store of what administrators change, or a word of it in the
// audit: all but the administrators' own limit.
var changing = regexp.MustCompile(`"pk":\{"S":"(user#|net#|pass#|pool#|fuse|audit)`)

// counting gives the changes so far of a rig without faults.
func counting(g *rig) *atomic.Int64 {
	var n atomic.Int64
	g.net.Plan = func(target string, body []byte) faults.Fault {
		if !strings.HasSuffix(target, ".GetItem") && !strings.HasSuffix(target, ".BatchGetItem") && !strings.HasSuffix(target, ".Query") && changing.Match(body) {
			n.Add(1)
		}
		return faults.None
	}
	return &n
}

// answers sends an event, whose answer is one of ours. What is refused changes nothing, and
// says which field is wrong.
func answers(t *testing.T, g *rig, n *atomic.Int64, e events.APIGatewayProxyRequest) {
	g.Advance(time.Minute) // so that nobody comes too often
	*g.log = buffer.Synced{}
	before := n.Load()
	res, err := g.call(t.Context(), e)
	check.OK(t, err)
	if res.StatusCode == 200 {
		check.That(t, json.Valid([]byte(res.Body)) && (e.HTTPMethod != "GET" || n.Load() == before), "%s: %d changes, %s", e.HTTPMethod, n.Load()-before, res.Body)
		return
	}
	var said struct {
		Error struct{ Message, Type, Code, Param string }
	}
	check.OK(t, json.Unmarshal([]byte(res.Body), &said))
	got := said.Error
	check.That(t, res.StatusCode >= 400 && res.StatusCode < 500 && got.Message != "" && got.Type != "" && got.Code != "", "%d %s", res.StatusCode, res.Body)
	check.That(t, n.Load() == before, "%d changes by what is refused: %s", n.Load()-before, res.Body)
	check.That(t, got.Code != "invalid_value" || got.Param != "", "an error without a field: %s", res.Body)
	check.That(t, len(res.Body) < 4<<10 && len(g.log.String()) < 4<<10, "an answer of %d bytes, a log of %d", len(res.Body), len(g.log.String()))
}

// FuzzEvent sends whatever bytes a gateway might.
func FuzzEvent(f *testing.F) {
	raw, err := os.ReadFile("../../../internal/lambdahttp/testdata/iam.json")
	check.OK(f, err)
	f.Add(raw)
	f.Add([]byte(`{"httpMethod":"HEAD","path":"/admin/status?#%","multiValueHeaders":{"":null,"\n":["\r\n"]},"requestContext":{"identity":{"userArn":"` + support + `"}}}`))
	f.Add([]byte(`{"httpMethod":"POST","path":"/admin/block","body":"!","isBase64Encoded":true}`))
	f.Add([]byte(`{"httpMethod":"GET","path":"/admin/limits","queryStringParameters":{"user":"ann"},"headers":{"Host":"/"},"requestContext":null}`))
	g := newRig(f)
	n := counting(g)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e events.APIGatewayProxyRequest
		if json.Unmarshal(data, &e) == nil { // else the runtime says so by itself
			answers(t, g, n, e)
		}
	})
}

// FuzzRequest sends what an administrator may type.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][4]string{
		{"POST", "/admin/limits/clear", "", `{"user":"ann","type":"all","reason":"she asked"}`}, {"POST", "/admin/limits/clear", "", `{"identity":"pool#x","type":"all"}`},
		{"POST", "/admin/limits/clear", "", `{"email":"a@example.com","type":"tokens","Type":"x"}`}, {"POST", "/admin/limits/clear", "", `{"user":"ann","user":"bob","type":"all"}`},
		{"GET", "/admin/limits", "user=ann", ""}, {"GET", "/admin/limits", "identity=net%23aaaaaaaabbbbbbbb&identity=x", ""}, {"GET", "/admin/limits", "email=%FF", ""},
		{"POST", "/admin/block", "", `{"user":"ann","for":"1d","reason":"x"}`}, {"POST", "/admin/block", "", `{"identity":"pass#DlRUYX1u-ll3P4Kknz6qug","until":1e99}`}, {"POST", "/admin/unblock", "", `{"user":"ann"}`},
		{"GET", "/admin/status", "", ""}, {"GET", "/admin/audit", "since=9223372036854775807&before=1", ""}, {"GET", "/admin/audit", "since=-9223372036854775808&identity=fuse", ""},
		{"PUT", "/admin/fuse", "", `{"state":"off","until":"2026-12-01T00:00:00Z"}`}, {"PUT", "/admin/fuse", "", `{"state":"anonymous_off","for":"-1h","until":9223372036854775807}`}, {"PUT", "/admin/fuse", "", `{"state":null}`},
		{"DELETE", "/admin/fuse", "", `[]`}, {"POST", "/admin/limits/clear", "", "{\"user\":\"\xff\"}"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	g := newRig(f)
	n := counting(g)
	event := g.event("GET", "/", "")
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		e := event
		e.HTTPMethod, e.Path, e.Body = method, path, body
		e.MultiValueQueryStringParameters = map[string][]string{}
		for pair := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(pair, "=")
			e.MultiValueQueryStringParameters[name] = append(e.MultiValueQueryStringParameters[name], value)
		}
		answers(t, g, n, e)
	})
}
