package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/version"
)

// result is what a command said and its exit code.
type result struct {
	stdout, stderr string
	code           int
}

func command(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, streams{&stdout, &stderr})
	return result{stdout.String(), stderr.String(), code}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokenfuse.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		code int
		says string // on standard error, or of --help on standard output
	}{
		{"", 2, "Try: tokenfuse --help"},
		{"--help", 0, "Usage: tokenfuse <command>"},
		{"--version", 0, "tokenfuse " + version.Number},
		{"token --help", 0, "Usage: tokenfuse token"},
		{"frobnicate", 2, "frobnicate"},
		{"token", 2, "Try: tokenfuse token --help"},
		{"token --sub", 2, "--sub"},
		{"token --sub 123 --ttl soon", 2, "--ttl"},
		{"check --verbose", 2, "Try: tokenfuse check --help"},
		{"check tokenfuse.yaml", 2, "tokenfuse.yaml"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			got := command(t, strings.Fields(test.args)...)
			said, silent := got.stderr, got.stdout
			if test.code == 0 {
				said, silent = silent, said
			}
			if got.code != test.code || !strings.Contains(said, test.says) || silent != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}
