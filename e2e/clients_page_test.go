//go:build clients

package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// site serves the page's page and the packages that it imports, from an origin that is not
// tokenfuse's.
type site struct {
	url  string
	page atomic.Pointer[page]
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := new(site)
	mux := http.NewServeMux()
	mux.Handle("/node_modules/openai/", http.StripPrefix("/node_modules/openai/", http.FileServer(http.Dir(packages("node_modules", "openai7")))))
	mux.Handle("/node_modules/altcha/", http.StripPrefix("/node_modules/altcha/", http.FileServer(http.Dir(packages("node_modules", "altcha")))))
	mux.HandleFunc("/{block}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("block")
		w.Header().Set("Content-Type", map[string]string{".html": "text/html", ".mjs": "text/javascript"}[path.Ext(name)])
		_, _ = w.Write([]byte(s.page.Load().programs[name]))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// run: a visitor asks, solves the challenge and gets the answer, and sees what is left.
// When the network has no more passes, the page says so in our words.
func (s *site) run(t *testing.T, l *lab) {
	t.Parallel()
	s.page.Store(l.page)
	l.page.program(t, "page.html")
	l.page.program(t, "budget.mjs")
	browse, err := os.ReadFile(filepath.Join(root, "e2e/clients/browse.mjs"))
	check.OK(t, err)
	program := filepath.Join(workplace(t, "", map[string]string{"browse.mjs": string(browse)}), "browse.mjs")
	for i := range 3 {
		got := run(t, nil, newNode(), program, chromium(t),
			s.url+"/page.html?tokenfuse="+l.challenging.url, "Hi")
		var shown struct {
			Answer, Problem, Left string
			Widget                any
		}
		err := json.Unmarshal([]byte(got.stdout), &shown)
		check.Must(t, err == nil && got.stderr == "", "%v: %+v", err, got)
		switch answered := strings.HasPrefix(shown.Answer, "This is the built-in") && strings.Contains(shown.Left, "2 docqa"); {
		case i < 2 && (!answered || shown.Problem != ""):
			t.Errorf("visit %d: %+v", i, shown)
		case i == 2 && (answered || !strings.Contains(shown.Problem, "You can ask again in")):
			t.Errorf("without passes: %+v", shown)
		}
	}
}

// testRoute: a server route streams answers for an account to a page as the AI SDK's hooks
// read them, and hands on what tokenfuse says, here to a visitor who is cut off.
func testRoute(t *testing.T, l *lab) {
	t.Parallel()
	c := sdk{name: "route", program: "route.mjs", with: []string{"ai-sdk.mjs"}}
	secret := []string{"", serveSecret} // of serve; dev makes one and prints it
	if l.cutOff.adminURL == "" {
		secret = regexp.MustCompile(`backend +web: Authorization: Bearer (\S+)`).FindStringSubmatch(l.cutOff.output())
	}
	check.Must(t, secret != nil, "dev prints no secret of the backend")
	for visitor, want := range map[string]string{
		`{"X-Visitor-Id":"ann","X-Visitor-Tier":"user"}`: `{"type":"text-delta",.*"delta":"This`,
		`{"X-Visitor-Address":"192.0.2.7"}`:              `{"type":"error","errorText":"[^"]*You can ask again in`,
	} {
		posted := call{URL: l.front + "/route/posted", Token: secret[1], Call: "post",
			Question: `{"visitor":` + visitor + `,"messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"Hi"}]}]}`}
		got := c.run(t, l, l.page.program(t, c.program), []call{posted})[0]
		check.That(t, regexp.MustCompile(want).MatchString(got.Text), "%+v, want %s", got, want)
	}
	// Where tokenfuse is not reached, the visitor hears no more than that.
	posted := call{URL: "http://127.0.0.1:1", Token: secret[1], Call: "post",
		Question: `{"visitor":{},"messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"Hi"}]}]}`}
	got := c.run(t, l, l.page.program(t, c.program), []call{posted})[0]
	check.That(t, strings.Contains(got.Text, `"errorText":"The answer failed."`), "not reached: %+v", got)
	check.Equal(t, l.requests("route", "posted").Load(), 2, "requests for 2 posts")
}

// testApp: what reads a stream without a package reads it whole, and its error.
func testApp(t *testing.T, l *lab) {
	t.Parallel()
	c := sdk{name: "app", program: "app.mjs"}
	quota := trials[4]
	quota.call = "stream"
	got := c.run(t, l, l.page.program(t, c.program), l.calls(t, c.name, trials[1], quota, trials[8]))
	check.That(t, strings.HasSuffix(got[0].Text, "real answers.") && got[0].Tokens != 0 && got[0].Thrown == "", "%+v", got[0])
	for i, code := range []string{"insufficient_quota", "provider_error"} {
		if r := got[i+1].Refusal; r == nil || r.Code != code || r.Message == "" {
			t.Errorf("%+v, want %s", got[i+1], code)
		}
	}
}

// testBudget: what is left is the same by the headers of an answer as without a call.
func testBudget(t *testing.T, l *lab) {
	t.Parallel()
	c := sdk{name: "budget", program: "budget.mjs"}
	calls := l.calls(t, c.name, trials[0])
	calls[0].Call, calls[0].Question = "budget", question{feature: "docqa", text: "Hi", most: 1}.body()
	got := c.run(t, l, l.page.program(t, c.program), calls)[0]
	var left [2]map[string]int
	err := json.Unmarshal([]byte(got.Text), &left)
	check.Must(t, err == nil, "%v: %+v", err, got)
	check.That(t, left[0]["docqa"] == 2 && left[1]["docqa"] == 2 && left[0]["tokens"] != 0 && left[1]["tokens"] >= left[0]["tokens"], "left %v", left)
}

// testShownError: the error that the page shows has the members of a real one.
func testShownError(t *testing.T, l *lab) {
	t.Parallel()
	var shown map[string]any
	check.OK(t, json.Unmarshal([]byte(l.page.program(t, "error.json")), &shown))
	limit := trials[3]
	a := l.cutOff.mustAsk(t, l.calls(t, "error", limit)[0].Token, question{feature: "docqa", text: "Hi", most: 1})
	var real struct{ Error map[string]any }
	check.OK(t, json.Unmarshal([]byte(a.body), &real))
	check.That(t, slices.Equal(slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(real.Error))), "shown %v, real %s", shown, a.body)
}
