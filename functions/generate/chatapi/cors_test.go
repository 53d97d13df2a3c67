package chatapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

const (
	appOrigin  = "https://app.example.com" // listed in the policy
	evilOrigin = "https://evil.example"
)

// from makes a request of a page.
func (g *rig) from(origin, method, path, token, body string) *http.Request {
	r := g.request(method, path, token, body)
	r.Header.Set("Origin", origin)
	return r
}

// readable checks that a page of the origin may read the answer.
func readable(t *testing.T, a answer, origin string) {
	t.Helper()
	h := a.header
	got := h.Values("Access-Control-Allow-Origin")
	check.That(t, slices.Equal(got, []string{origin}), "%d: Access-Control-Allow-Origin %q", a.status, got)
	if !slices.Contains(h.Values("Vary"), "Origin") {
		t.Errorf("%d: Vary %q", a.status, h.Values("Vary"))
	}
	if _, ok := h["Access-Control-Allow-Credentials"]; ok {
		t.Errorf("%d: credentials are allowed", a.status)
	}
	exposed := strings.Split(h.Get("Access-Control-Expose-Headers"), ", ")
	for _, name := range []string{
		"Retry-After", "RateLimit", "RateLimit-Policy", "x-request-id", "x-should-retry", "x-max-output-tokens", "x-input-cut", "x-input-truncated",
		"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
		"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
	} {
		check.That(t, slices.Contains(exposed, name), "%d: %s is not exposed", a.status, name)
	}
	// Whatever else an answer has must be exposed, or be one that every page may
	// read or that is not for pages.
	for name := range h {
		plain := []string{"Content-Type", "Cache-Control", "Vary", "Allow"}
		listed := slices.ContainsFunc(exposed, func(s string) bool { return http.CanonicalHeaderKey(s) == name })
		check.That(t, listed || slices.Contains(plain, name) || strings.HasPrefix(name, "Access-Control-"), "%d: %s is not exposed", a.status, name)
	}
}

func TestListedOrigin(t *testing.T) {
	t.Parallel()
	g := impatient.newRig(t, limitsOf(`tokens: {capacity: 50000, per: 1h}, requests: {capacity: 5, per: 1h}`))
	user := g.token("123", "")
	stream := strings.TrimSuffix(chatBody("docqa", "Hi"), "}") + `,"stream":true}`
	for _, tc := range []struct {
		name, method, path, token, body string
		status                          int
	}{
		{"models", "GET", "/v1/models", user, "", 200},
		{"limits", "GET", "/v1/limits", user, "", 200},
		{"chat", "POST", chatPath, user, chatBody("docqa", "Hi"), 200},
		{"chat, anonymous and cut", "POST", chatPath, "", chatBody("docqa", strings.Repeat("a ", 1500)), 200},
		{"stream", "POST", chatPath, user, stream, 200},
		{"failing provider", "POST", chatPath, user, chatBody("docqa", "[[fail:500]]"), 502},
		{"failing stream", "POST", chatPath, user, strings.Replace(stream, "Hi", "[[fail:empty]]", 1), 502},
		{"stream that breaks", "POST", chatPath, user, strings.Replace(stream, "Hi", "[[fail:cut]]", 1), 200},
		{"denied", "POST", chatPath, user, chatBody("docqa", "Hi"), 429},
		{"bad JSON", "POST", chatPath, user, "{", 400},
		{"bad token", "POST", chatPath, "nonsense", chatBody("docqa", "Hi"), 401},
		{"another tier's", "POST", chatPath, "", chatBody("cv", "Hi"), 403},
		{"unknown model", "POST", chatPath, user, chatBody("nope", "Hi"), 404},
		{"unknown route", "POST", "/v1/completions", user, chatBody("docqa", "Hi"), 404},
		{"wrong method", "DELETE", chatPath, user, "", 405},
		{"too large", "POST", chatPath, user, strings.Repeat(" ", 2<<20), 413},
		{"wrong type", "POST", chatPath, user, "", 415},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.do(g.from(appOrigin, tc.method, tc.path, tc.token, tc.body))
			check.Must(t, a.status == tc.status, "%d, want %d: %s", a.status, tc.status, a.body)
			readable(t, a, appOrigin)
			g.common(t, a)
		})
	}
	g.net.Plan = faults.Always(faults.LostRequest)
	a := g.do(g.from(appOrigin, http.MethodGet, "/v1/limits", user, ""))
	check.Equal(t, a.status, http.StatusServiceUnavailable, "%s", a.body)
	readable(t, a, appOrigin)
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	without := newRig(t, func(yaml string) string {
		return strings.Replace(yaml, `cors: {origins: ["https://app.example.com"]}`, "", 1)
	})
	const own = "api.example.net"
	for _, tc := range []struct {
		origin           string
		listed, unlisted bool // whether it may call, with and without the section
	}{
		{appOrigin, true, false},
		{"https://api.example.net", true, true},
		{"http://api.example.net", true, true},
		{"https://api.example.net:8443", false, false},
		{"https://api.example.net.evil.example", false, false},
		{"https://evil.example/api.example.net", false, false},
		{"https://evil.example#api.example.net", false, false},
		{"api.example.net", false, false},
		{evilOrigin, false, false},
		{"null", false, false},
		{"*", false, false},
		{"http://app.example.com", false, false},
		{"https://app.example.com:444", false, false},
		{"https://app.example.com.evil.example", false, false},
		{"https://APP.example.com", false, false}, // browsers send lower case
		{"https://sub.app.example.com", false, false},
		{"https://app.example.com/", false, false},
		{"https://app.example.com, https://evil.example", false, false},
		{"%zz", false, false},
	} {
		for g, may := range map[*rig]bool{g: tc.listed, without: tc.unlisted} {
			for _, r := range []*http.Request{
				g.from(tc.origin, http.MethodGet, "/v1/models", "", ""),
				g.from(tc.origin, http.MethodOptions, chatPath, "", ""),
			} {
				r.Host = own
				a := g.do(r)
				switch {
				case may && a.status >= 300:
					t.Errorf("%s: %d %s", tc.origin, a.status, a.body)
				case may:
					readable(t, a, tc.origin)
				default:
					g.refused(t, a, openai.OriginNotAllowed, "")
					check.That(t, a.header.Get("Access-Control-Allow-Origin") == "", "%s may read the answer", tc.origin)
				}
			}
		}
	}

	// A page may post without asking first: that must not cost anything.
	for _, g := range []*rig{g, without} {
		for _, token := range []string{"", g.token("123", "")} {
			r := g.from(evilOrigin, http.MethodPost, chatPath, token, chatBody("docqa", "Hi"))
			g.refused(t, g.do(r), openai.OriginNotAllowed, "")
		}
		g.untouched(t)
	}

	// Not a page: nothing is said of origins but that they matter.
	a := g.do(g.request(http.MethodGet, "/v1/models", "", ""))
	check.That(t, a.header.Get("Access-Control-Allow-Origin") == "" && a.header.Get("Vary") == "Origin", "%v", a.header)
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	const asked = "authorization,content-type,x-challenge-pass,x-stainless-retry-count"
	for _, path := range []string{chatPath, "/v1/models", "/v1/limits"} {
		r := g.from(appOrigin, http.MethodOptions, path, "", "")
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", asked)
		a := g.do(r)
		check.That(t, a.status == http.StatusNoContent && a.body == "", "%s: %d %q", path, a.status, a.body)
		for name, want := range map[string]string{
			"Access-Control-Allow-Methods": "GET, POST", "Access-Control-Allow-Headers": asked, "Access-Control-Max-Age": "7200",
		} {
			check.Equal(t, a.header.Get(name), want, "%s: %s", path, name)
		}
		readable(t, a, appOrigin)
		g.common(t, a)
	}
	for _, asked := range []string{"", "a\x00b", "a b", "<script>", "a;b", ","} {
		r := g.from(appOrigin, http.MethodOptions, chatPath, "", "")
		r.Header.Set("Access-Control-Request-Headers", asked)
		if a := g.do(r); a.status != http.StatusNoContent || a.header.Get("Access-Control-Allow-Headers") != "" {
			t.Errorf("%q is echoed: %q", asked, a.header.Get("Access-Control-Allow-Headers"))
		}
	}
	// A bad token is not a preflight's business, and one without an origin is answered.
	r := g.request(http.MethodOptions, chatPath, "nonsense", "")
	if a := g.do(r); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	g.untouched(t)
}

// A pattern lets in what it stands for, and each page is told its own name.
func TestOriginPatterns(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(yaml string) string {
		return strings.Replace(yaml, `["https://app.example.com"]`, `["https://*-team.vercel.app", "capacitor://localhost"]`, 1)
	})
	var refused []string
	g.handler.RefusedOrigin = func(origin string) { refused = append(refused, origin) }
	for _, origin := range []string{"https://pr-7-team.vercel.app", "capacitor://localhost"} {
		readable(t, g.do(g.from(origin, http.MethodPost, chatPath, "", chatBody("docqa", "Hi"))), origin)
	}
	for _, origin := range []string{"https://evil.vercel.app", "https://a.b-team.vercel.app"} {
		a := g.do(g.from(origin, http.MethodPost, chatPath, "", chatBody("docqa", "Hi")))
		g.refused(t, a, openai.OriginNotAllowed, "")
		message := g.wireError(a).Message
		check.That(t, strings.Contains(message, origin+" may not") && strings.Contains(message, "cors.origins of tokenfuse.yaml"), "%s is told %q", origin, message)
	}
	want := []string{"https://evil.vercel.app", "https://a.b-team.vercel.app"}
	check.That(t, slices.Equal(refused, want), "refused, by the hook: %q", refused)
}
