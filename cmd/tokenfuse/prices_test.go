package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// TestOurPrices: on the day of the table, what we hand out has the prices that the
// package, as it is pinned, has for that day.
func TestOurPrices(t *testing.T) {
	t.Parallel()
	for file, unpublished := range map[string][]string{
		"tokenfuse.yaml": nil,
		"prices.yaml":    {"claude-haiku-5-5"},
	} {
		models, err := pricedModels(filepath.Join("../..", file))
		check.OK(t, err)
		found, err := askPublished(t.Context(), ".", "2026-11-30", models)
		check.OK(t, err)
		var w strings.Builder
		if !reportPrices(&w, file, models, found, nil) {
			t.Error(w.String())
		}
		for i, m := range models {
			known := found[i] != nil
			check.That(t, known != slices.Contains(unpublished, m.Name), "%s is published: %t", m.Name, known)
		}
	}
}

// A price that is announced counts from its day.
func TestPricesOfADay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "models.yaml")
	check.OK(t, os.WriteFile(file, []byte(`
providers: {main: {kind: openai, base_url: "https://api.openai.com/v1"}, own: {kind: openai, base_url: "http://localhost:11434/v1"}}
models:
  luna:
    provider: main
    id: gpt-5.6-luna
    context: 1050000
    price_per_mtok: {input: "0.20", cached_input: "0.02", cache_write: "0.25", output: "1.20", long_context: {above: 271999, input: "0.40", cached_input: "0.04", cache_write: "0.50", output: "1.80"}}
  local: {provider: own, id: gpt-5.6-luna, max_tokens_field: max_tokens, context: 1000, price_per_mtok: {input: "0", output: "0"}}
`), 0o600))
	models, err := pricedModels(file)
	check.OK(t, err)
	for day, same := range map[string]bool{"2026-07-29": false, "2026-07-31": true} {
		found, err := askPublished(t.Context(), ".", day, models)
		check.OK(t, err)
		var w strings.Builder
		check.That(t, reportPrices(&w, "f", models, found, nil) == same && strings.Contains(w.String(), "local: gpt-5.6-luna is not published there"),
			"on %s:\n%s", day, &w)
	}
}

func TestPricesFail(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	check.OK(t, os.WriteFile(bad, []byte("providers: {main: {kind: bedrock}}\nmodels: {m: {provider: main, id: m, context: 1000}}\n"), 0o600))
	if _, err := pricedModels(bad); err == nil || !strings.Contains(err.Error(), "price_per_mtok") {
		t.Errorf("a model without a price: %v", err)
	}
	if _, err := pricedModels("no-such.yaml"); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	if _, err := askPublished(t.Context(), t.TempDir(), "2026-11-30", nil); err == nil || !strings.Contains(err.Error(), "'@pydantic/genai-prices'") {
		t.Errorf("no package: %v", err)
	}
}

// The command: exit code 0 if all is as published or meant, 1 if not.
func TestPrices(t *testing.T) {
	t.Parallel()
	file := writeFile(t, strings.NewReplacer("https://api.example.com/v1", "https://api.openai.com/v1", "id: m,", "id: gpt-5.6-luna,").Replace(goodConfig))
	const differs = "DIFFERS from what is published: "
	for _, test := range []struct {
		args         []string
		code         int
		says, errors string
	}{
		{[]string{"../../tokenfuse.yaml", "../../prices.yaml", "--on", "2026-11-30"}, 0, "claude-haiku-5-5 is not published there: check it by hand", ""},
		{[]string{file}, 1, file + ": small: " + differs, "tokenfuse: prices differ from what is published\n"},
		{[]string{file, "--meant", "other"}, 1, differs, "tokenfuse: prices differ from what is published\n"},
		{[]string{file, "--meant", "other,small"}, 0, "differs from what is published, as meant: ", ""},
		{[]string{file, "../../tokenfuse.yaml", "--on", "2026-11-30"}, 1, "small: as published\n", "tokenfuse: prices differ from what is published\n"},
		{[]string{file, "--on", "today"}, 1, "", "tokenfuse: --on must be a day such as 2006-01-02, not \"today\"\n"},
		{[]string{"no-such.yaml"}, 1, "", "no-such.yaml: no such file"},
		{[]string{}, 1, "", "tokenfuse.yaml: no such file"}, // of the folder that it runs in
	} {
		got := command(t, append([]string{"prices"}, test.args...)...)
		check.That(t, got.code == test.code && strings.Contains(got.stdout, test.says) && strings.Contains(got.stderr, test.errors) && (test.code == 0) == (got.stderr == ""),
			"%v: %+v", test.args, got)
	}
}

// reportPrices writes what a comparison says, and reports whether all is as it should be.
func reportPrices(w io.Writer, file string, models []*policy.Model, found []*published, meant []string) bool {
	all := comparedPrices(file, models, found, meant)
	writePrices(w, all)
	return !differ(all)
}
