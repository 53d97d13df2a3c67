package main

import (
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const goodConfig = `providers: {main: {kind: openai, base_url: "https://api.example.com/v1", api_key: {env: KEY}}}
models: {small: {provider: main, id: m, max_tokens_field: max_completion_tokens, context: 10000, price_per_mtok: {input: "1", output: "2"}}}
features: {docqa: {model: small, max_output_tokens: 100}}
tiers: {anonymous: {max_input_tokens: 100, max_output_tokens: 100, limits: {tokens: {capacity: 1000, per: 1h}}}}
fingerprint: {secret: {env: SECRET}}
`

func TestCheck(t *testing.T) {
	t.Parallel()
	good := writeFile(t, goodConfig)
	got := command(t, "check", "--config", good)
	check.That(t, got.code == 0 && got.stderr == "" && strings.Contains(got.stdout, good+" is right: 1 features, 1 tiers, 1 models.\n"), "a good file: %+v", got)
	check.That(t, strings.Contains(got.stdout, "\nopen: docqa for anonymous: text\n"), "what is open to whom: %s", got.stdout)
	check.That(t, strings.Contains(got.stdout, "note: pools is left out"), "no note of what does not exist: %s", got.stdout)

	// Each mistake has a line of its own, with the file and the line in it.
	bad := writeFile(t, strings.NewReplacer(
		`output: "2"`, `outptu: "2"`, `capacity: 1000`, `capacity: 150`, `per: 1h`, `per: 1`,
	).Replace(goodConfig)+"frills: true\n")
	got = command(t, "check", "--config", bad)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	want := []string{
		"line 2: models.small.price_per_mtok.outptu",
		"line 2: models.small.price_per_mtok.output",
		"line 4: tiers.anonymous.limits.tokens.capacity",
		"line 4: tiers.anonymous.limits.tokens.per",
		"line 6: frills",
	}
	check.Must(t, got.code == 1 && len(lines) == len(want) && got.stderr == "tokenfuse: "+bad+" has 5 mistakes\n", "a bad file: %+v", got)
	for i, line := range lines {
		check.That(t, strings.HasPrefix(line, bad+": "+want[i]+":"), "line %q, want %q", line, want[i])
	}

	got = command(t, "check", "--config", writeFile(t, goodConfig+"frills: true\n"))
	check.That(t, got.code == 1 && strings.Contains(got.stderr, "has 1 mistake\n"), "one mistake: %+v", got)
	got = command(t, "check", "--config", "no-such.yaml")
	check.That(t, got.code == 1 && got.stdout == "" && strings.Contains(got.stderr, "no-such.yaml: no such file"), "no file: %+v", got)
}

// The project's own file is right.
func TestCheckOwnConfiguration(t *testing.T) {
	t.Parallel()
	got := command(t, "check", "--config", "../../tokenfuse.yaml")
	check.That(t, got.code == 0, "%+v", got)
}
