package e2e

import (
	"net"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What dev cannot start with is said in a line, with exit code 1, and leaves
// nothing running.
func TestDevRefusesToStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	t.Cleanup(func() { taken.Close() })
	good := testConfig(t, 1000)
	for name, test := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"port in use":        {[]string{"--config", good, "--listen", taken.Addr().String()}, 1, []string{"--listen", "address already in use"}},
		"no port":            {[]string{"--config", good, "--listen", "127.0.0.1"}, 1, []string{"--listen", "missing port"}},
		"no instance":        {[]string{"--config", good, "--instances", "0"}, 1, []string{"--instances must be at least 1"}},
		"no configuration":   {[]string{"--config", "no-such.yaml"}, 1, []string{"no-such.yaml", "no such file"}},
		"bad configuration":  {[]string{"--config", writeConfig(t, "tiers: {}\nfrills: 1\n")}, 1, []string{"line 2: frills", "mistakes"}},
		"data in a file":     {[]string{"--config", good, "--listen", "127.0.0.1:0", "--data", good}, 1, []string{good, "not a directory"}},
		"no store":           {[]string{"--config", good, "--listen", "127.0.0.1:0", "--dynamodb", "http://127.0.0.1:1"}, 1, []string{"the store at http://127.0.0.1:1", "connection refused"}},
		"two stores":         {[]string{"--data", t.TempDir(), "--dynamodb", "http://127.0.0.1:1"}, 2, []string{"--data and --dynamodb"}},
		"unknown flag":       {[]string{"--port", "1"}, 2, []string{"--port", "tokenfuse dev --help"}},
		"instances no digit": {[]string{"--instances", "many"}, 2, []string{"--instances"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, nil, binary, append([]string{"dev"}, test.args...)...)
			check.That(t, got.code == test.code && !strings.Contains(got.stdout, "ready"), "exit code %d, want %d: %s", got.code, test.code, got.stdout)
			for _, want := range test.says {
				check.That(t, strings.Contains(got.stderr, want), "no %q in: %s", want, got.stderr)
			}
			check.That(t, !strings.Contains(got.stderr, "panic") && !strings.Contains(got.stderr, "goroutine"), "a panic: %s", got.stderr)
		})
	}
}

// anonymousConfig has no tier of users.
const anonymousConfig = `
providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}}}
models: {small: {provider: main, id: m, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}}}
features: {ask: {model: small, max_output_tokens: 10, tiers: [anonymous]}}
tiers: {anonymous: {max_input_tokens: 100, max_output_tokens: 10, limits: {requests: {capacity: 9, per: 1h}}}}
fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}
`

// A configuration without the tier of users still runs, for anonymous callers.
func TestDevWithoutUsers(t *testing.T) {
	t.Parallel()
	d := startDev(t, writeConfig(t, anonymousConfig))
	d.complete(t, "", question{feature: "ask", text: "Go on.", most: 5})
	a, err := d.ask(t.Context(), d.token(t, "123"), question{feature: "ask", text: "Go on.", most: 5})
	check.OK(t, err)
	check.Equal(t, a.status, 401, "a token without a tier for it: … %s", a.body)
}

// What is made for a deployment does not stand in the way here: secrets that are
// kept in AWS, and a distribution that nobody may go round.
func TestDevOfDeployedConfiguration(t *testing.T) {
	t.Parallel()
	d := startDev(t, writeConfig(t, `
providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY, ssm: /app/key}}}
models: {small: {provider: main, id: m, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "1"}}}
features: {ask: {model: small, max_output_tokens: 10, tiers: [anonymous]}}
tiers: {anonymous: {max_input_tokens: 100, max_output_tokens: 10, limits: {requests: {capacity: 9, per: 1h}}}}
fingerprint: {secret: {secret: app/fingerprint}}
cloudfront: {origin_secrets: [{ssm: /app/origin}], url: "https://ai.example.com", required: true}
`))
	d.complete(t, "", question{feature: "ask", text: "Go on.", most: 5})
}
