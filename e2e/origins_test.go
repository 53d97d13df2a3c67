package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Pages of this machine may call dev; of any other, dev prints the line to add.
func TestDevOrigins(t *testing.T) {
	t.Parallel()
	d := startDev(t, "tokenfuse.yaml")
	ask := func(origin string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/models", http.NoBody)
		check.OK(t, err)
		req.Header.Set("Origin", origin)
		res, err := http.DefaultClient.Do(req)
		check.OK(t, err)
		_ = res.Body.Close()
		return res
	}
	for _, origin := range []string{"http://localhost:5173", "http://127.0.0.1:3000", "http://[::1]:4000", "https://app.example.com"} {
		if res := ask(origin); res.StatusCode != http.StatusOK || res.Header.Get("Access-Control-Allow-Origin") != origin {
			t.Errorf("%s: %d, for %q", origin, res.StatusCode, res.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	for origin, line := range map[string]string{
		"http://192.168.1.5:3000": `cors: {origins: ["https://app.example.com", "http://192.168.1.5:3000"]}` + "\n",
		"null":                    `refused a page of origin "null": no such origin can be listed`,
	} {
		for range 2 {
			res := ask(origin)
			check.That(t, res.StatusCode == http.StatusForbidden, "%s: %d", origin, res.StatusCode)
		}
		await(t, "the line for "+origin, func() bool { return strings.Contains(d.output(), line) })
		check.Equal(t, strings.Count(d.output(), line), 1, "dev wrote the line for %s … times", origin)
	}
}
