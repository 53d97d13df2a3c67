package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// claims reads a token's claims without checking it.
func claims(t *testing.T, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	check.Must(t, len(parts) == 3, "no token: %q", token)
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	check.OK(t, err)
	var c map[string]any
	check.OK(t, json.Unmarshal(payload, &c))
	return c
}

func TestToken(t *testing.T) {
	t.Parallel()
	users, err := issuer.New(issuer.Options{URL: "http://issuer.invalid", Audience: "test"})
	check.OK(t, err)
	routes := http.NewServeMux()
	routes.Handle("/dev/token", users.Tokens())
	dev := httptest.NewServer(routes)
	t.Cleanup(dev.Close)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()

	for name, test := range map[string]struct {
		args []string
		want map[string]any
	}{
		"subject":    {[]string{"--sub", "123"}, map[string]any{"sub": "123"}},
		"all":        {[]string{"--sub", "123", "--email", "a@example.com", "--plan", "pro"}, map[string]any{"sub": "123", "email": "a@example.com", "email_verified": true, "plan": "pro"}},
		"unverified": {[]string{"--sub", "123", "--email", "a@example.com", "--unverified"}, map[string]any{"email_verified": false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, append([]string{"token", "--endpoint", dev.URL + "/"}, test.args...)...)
			token, alone := strings.CutSuffix(got.stdout, "\n")
			check.Must(t, got.code == 0 && got.stderr == "" && alone && !strings.ContainsAny(token, " \n"), "%+v", got)
			c := claims(t, token)
			for claim, want := range test.want {
				check.That(t, c[claim] == want, "%s is %v, want %v", claim, c[claim], want)
			}
		})
	}
	t.Run("lifetime", func(t *testing.T) {
		t.Parallel()
		got := command(t, "token", "--endpoint", dev.URL, "--sub", "123", "--ttl", "90s")
		c := claims(t, strings.TrimSpace(got.stdout))
		if life := c["exp"].(float64) - c["iat"].(float64); life < 90 || life > 91 { // whole seconds, never less than asked
			t.Errorf("good for %v s", life)
		}
	})

	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"nobody there":     {[]string{"--sub", "123", "--endpoint", gone.URL}, "no answer from " + gone.URL + ": is `tokenfuse dev` running? (dial tcp"},
		"something else":   {[]string{"--sub", "123", "--endpoint", other.URL}, other.URL + " answered 404"},
		"no URL":           {[]string{"--sub", "123", "--endpoint", "somewhere"}, "--endpoint must be an address such as"},
		"not a URL at all": {[]string{"--sub", "123", "--endpoint", "http://%"}, "--endpoint"},
		"refused":          {[]string{"--sub", "a b", "--endpoint", dev.URL}, "sub must be"},
		"negative":         {[]string{"--sub", "123", "--ttl=-1h", "--endpoint", dev.URL}, "ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, append([]string{"token"}, test.args...)...)
			check.That(t, got.code == 1 && got.stdout == "" && strings.Contains(got.stderr, test.says), "%+v", got)
		})
	}
}
