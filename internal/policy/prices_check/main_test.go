package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOurFiles: on the day of the table, what we hand out has the prices that the
// package, as it is pinned, has for that day.
func TestOurFiles(t *testing.T) {
	t.Parallel()
	for file, unpublished := range map[string][]string{
		"tokenfuse.yaml": nil,
		"prices.yaml":    {"claude-haiku-5-5"},
	} {
		models, err := load(filepath.Join("../../..", file))
		if err != nil {
			t.Fatal(err)
		}
		found, err := ask(t.Context(), "published.mjs", "2026-11-30", models)
		if err != nil {
			t.Fatal(err)
		}
		var w strings.Builder
		if !report(&w, file, models, found, nil) {
			t.Error(w.String())
		}
		for i, m := range models {
			if known := found[i] != nil; known == slices.Contains(unpublished, m.Name) {
				t.Errorf("%s is published: %t", m.Name, known)
			}
		}
	}
}

// A price that is announced counts from its day.
func TestDay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "models.yaml")
	if err := os.WriteFile(file, []byte(`
providers: {main: {kind: openai, base_url: "https://api.openai.com/v1"}, own: {kind: openai, base_url: "http://localhost:11434/v1"}}
models:
  luna:
    provider: main
    id: gpt-5.6-luna
    context: 1050000
    price_per_mtok: {input: "0.20", cached_input: "0.02", cache_write: "0.25", output: "1.20", long_context: {above: 271999, input: "0.40", cached_input: "0.04", cache_write: "0.50", output: "1.80"}}
  local: {provider: own, id: gpt-5.6-luna, max_tokens_field: max_tokens, context: 1000, price_per_mtok: {input: "0", output: "0"}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	models, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	for day, same := range map[string]bool{"2026-07-29": false, "2026-07-31": true} {
		found, err := ask(t.Context(), "published.mjs", day, models)
		if err != nil {
			t.Fatal(err)
		}
		var w strings.Builder
		if report(&w, "f", models, found, nil) != same || !strings.Contains(w.String(), "local: gpt-5.6-luna is not published there") {
			t.Errorf("on %s:\n%s", day, &w)
		}
	}
}

func TestFails(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("providers: {main: {kind: bedrock}}\nmodels: {m: {provider: main, id: m, context: 1000}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(bad); err == nil || !strings.Contains(err.Error(), "price_per_mtok") {
		t.Errorf("a model without a price: %v", err)
	}
	if _, err := load("no-such.yaml"); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	if _, err := ask(t.Context(), "no-such.mjs", "2026-11-30", nil); err == nil || !strings.Contains(err.Error(), "no-such.mjs") {
		t.Errorf("no script: %v", err)
	}
}
