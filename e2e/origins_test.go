package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// Pages of this machine may call dev; of any other, dev prints the line to add.
func TestDevOrigins(t *testing.T) {
	t.Parallel()
	d := startDev(t, "tokenfuse.yaml")
	ask := func(origin string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/models", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
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
			if res := ask(origin); res.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %d", origin, res.StatusCode)
			}
		}
		await(t, "the line for "+origin, func() bool { return strings.Contains(d.output(), line) })
		if n := strings.Count(d.output(), line); n != 1 {
			t.Errorf("dev wrote the line for %s %d times", origin, n)
		}
	}
}
