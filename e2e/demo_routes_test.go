package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What dev's page does beside the API is for pages of dev alone: not for those of others,
// under whatever name they reach it.
func TestDemoRoutes(t *testing.T) {
	t.Parallel()
	d := startDev(t, "tokenfuse.yaml")
	for _, route := range []string{"/dev/clear", "/dev/attack"} {
		for name, value := range map[string]string{"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"} {
			check.Equal(t, demoPost(t, d.url+route, `{}`, name, value).status, http.StatusForbidden, "%s with %s: %s", route, name, value)
		}
	}
	got := demoPost(t, d.url+"/dev/clear", `{"user":"nobody","type":"all"}`, "Origin", d.url)
	check.That(t, got.status == http.StatusNotFound && strings.Contains(got.body, "identity_not_found"), "%d %s", got.status, got.body)
	page, err := read(client.Get(d.url + "/"))
	check.That(t, err == nil && page.status == http.StatusOK && strings.Contains(page.body, "/demo/demo.js"), "%v: %d %s", err, page.status, page.body)
	check.That(t, !strings.Contains(page.header.Get("Content-Security-Policy"), "unsafe"), "%s", page.header)
}

// A model that somebody has to pay for is not attacked.
func TestDemoSparesRealProviders(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "tokenfuse.yaml"))
	check.OK(t, err)
	keyless := regexp.MustCompile(`(?m)^    api_key: .*$`).ReplaceAll(text, nil) // such a provider is called as it is
	check.Must(t, len(keyless) < len(text), "tokenfuse.yaml has no key")
	config := filepath.Join(t.TempDir(), "tokenfuse.yaml")
	check.OK(t, os.WriteFile(config, keyless, 0o600))
	d := startDev(t, config)
	got := demoPost(t, d.url+"/dev/attack", `{}`, "Origin", d.url)
	check.That(t, got.status == http.StatusConflict && strings.Contains(got.body, "--fake-provider"), "%d %s", got.status, got.body)
}

func demoPost(t *testing.T, url, body, header, value string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	check.OK(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(header, value)
	if header == "Host" {
		r.Host = value
	}
	got, err := read(client.Do(r))
	check.OK(t, err)
	return got
}
