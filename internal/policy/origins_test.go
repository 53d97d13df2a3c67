package policy

import (
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// withOrigins is the good file with other origins.
func withOrigins(origins string) string {
	return strings.Replace(good, `"https://app.example.com", "http://localhost:5173"`, origins, 1)
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		origin    string
		yes, no   string // origins of pages, in blanks
		strangers string // whom check warns of
	}{
		{"https://app.example.com", "https://app.example.com", "http://app.example.com https://app.example.com:8443 https://xapp.example.com https://app.example.com.evil.example", ""},
		{"https://*.example.com", "https://a.example.com https://a-b_c.example.com https://xn--bcher-kva.example.com",
			"https://example.com https://.example.com https://a.b.example.com https://a.example.com:8443 http://a.example.com https://evil.example/.example.com https://A.example.com https://a.example.com.evil.example", ""},
		{"https://*-team.vercel.app", "https://app-git-main-team.vercel.app", "https://-team.vercel.app https://evil.vercel.app https://x.y-team.vercel.app", ".vercel.app"},
		{"https://pr-*.example.com:8443", "https://pr-1.example.com:8443", "https://pr-1.example.com https://pr-.example.com:8443", ""},
		{"https://app.*.example.com", "https://app.eu.example.com", "https://app.example.com https://eu.example.com", ""},
		{"https://*.github.io", "https://somebody.github.io", "https://github.io", ".github.io"},
		{"https://*.pages.dev:8443", "https://a.pages.dev:8443", "https://a.pages.dev", ".pages.dev"},
		{"https://*.example.co.uk", "https://a.example.co.uk", "", ""},
		{"https://*.co.uk", "https://a.co.uk", "", ".co.uk"},
		{"http://[::1]:5173", "http://[::1]:5173", "http://[::1]", ""},
		{"capacitor://localhost", "capacitor://localhost", "ionic://localhost https://localhost", ""},
		{"ionic://localhost", "ionic://localhost", "", ""},
		{"tauri://localhost", "tauri://localhost", "", ""},
		{"http://tauri.localhost", "http://tauri.localhost", "", ""},
		{"app://-", "app://-", "", ""},
		{"myapp.desktop://bundle", "myapp.desktop://bundle", "", ""},
		{"chrome-extension://abcdefghijklmnopabcdefghijklmnop", "chrome-extension://abcdefghijklmnopabcdefghijklmnop", "chrome-extension://x", ""},
		{"moz-extension://*", "moz-extension://0b4f6c3e-1a2b-4c5d-8e9f-001122334455", "moz-extension://a/b https://x", "extension"},
	} {
		p := parse(t, withOrigins(`"`+test.origin+`"`))
		for _, origin := range strings.Fields(test.yes) {
			check.That(t, p.CORS.Allows(origin), "%s does not let %s call", test.origin, origin)
		}
		for _, origin := range append(strings.Fields(test.no), "", "null", "*") {
			check.That(t, !p.CORS.Allows(origin), "%s lets %q call", test.origin, origin)
		}
		notes := strings.Join(p.Notes(), "\n")
		warned := strings.Contains(notes, "cors.origins")
		check.That(t, warned == (test.strangers != "") && strings.Contains(notes, test.strangers), "%s: notes %q", test.origin, notes)
	}
	for _, origin := range []string{
		"https://*", "https://*.com", "https://app.*", "https://a.*.com", "https://*.*.example.com", "https://**.example.com", "*://app.example.com", "https://app.example.com:*",
		"https://*.example.com/", "https://*.example.com:443", "https://*.EXAMPLE.com", "https://[*]", "chrome-extension://*", "moz-extension://a*", "capacitor://", "file://",
		"Capacitor://localhost", "capacitor://localhost/", "capacitor:localhost", "https://a..b", "https://.example.com", "https://example.com.",
	} {
		if places, text := problemsOf(t, withOrigins(`"`+origin+`"`)); len(places) != 1 || !strings.HasSuffix(places[0], "cors.origins[0]") || !strings.Contains(text, "such as https://app.example.com") {
			t.Errorf("%s: %q %s", origin, places, text)
		}
	}
	check.That(t, !(*CORS)(nil).Allows("https://app.example.com"), "without a section a page may call")
}

// Pages of this machine may call where the policy is tried out, and nowhere else.
func TestLoopbackOrigins(t *testing.T) {
	t.Parallel()
	p := parse(t, good)
	without := parse(t, good)
	without.CORS = nil
	for origin, want := range map[string]bool{
		"http://localhost:3000": true, "https://localhost": true, "http://127.0.0.1:8080": true, "http://[::1]:4321": true, "http://tauri.localhost": true,
		"http://192.168.1.5:3000": false, "http://localhost.evil.example": false, "http://evillocalhost": false, "http://localhost:3000/x": false, "http://a@localhost": false,
		"capacitor://localhost": false, "null": false, "https://evil.example": false,
	} {
		for _, p := range []*Policy{p, without} {
			local := p.Locally(Local{Replaces: func(*Provider) bool { return false }})
			check.Equal(t, local.CORS.Allows(origin), want, "%s may call locally", origin)
			check.That(t, !p.CORS.Allows(origin), "%s may call", origin)
		}
		if local := p.Locally(Local{Replaces: func(*Provider) bool { return false }}); !local.CORS.Allows("https://app.example.com") {
			t.Error("a listed page may not call locally")
		}
	}
}
