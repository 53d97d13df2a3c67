package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/version"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// result is what a command said and its exit code.
type result struct {
	stdout, stderr string
	code           int
}

func command(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, streams{out: &stdout, err: &stderr})
	return result{stdout.String(), stderr.String(), code}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokenfuse.yaml")
	check.OK(t, os.WriteFile(file, []byte(text), 0o600))
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
			check.That(t, got.code == test.code && strings.Contains(said, test.says) && silent == "", "%+v", got)
		})
	}
}

// With --json whatever keeps a command from answering is one object on standard error.
func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	for args, code := range map[string]string{
		"--json frobnicate": "usage", "limits --json": "usage", "check --json --config " + writeFile(t, "frills: true\n"): "mistakes",
		"check --json --config no-such.yaml": "failed", "token --json --sub 1 --endpoint http://127.0.0.1:1": "failed", "prices --json no-such.yaml": "failed",
	} {
		got := command(t, strings.Fields(args)...)
		var said struct {
			Error struct {
				Message, Code string
				Mistakes      []string
			}
		}
		if err := json.Unmarshal([]byte(got.stderr), &said); err != nil || got.code == 0 || got.stdout != "" || said.Error.Message == "" || said.Error.Code != code ||
			(len(said.Error.Mistakes) > 0) != (code == "mistakes") {
			t.Errorf("%s: %+v, %v", args, got, err)
		}
	}
	for args, member := range map[string]string{
		"--version --json": "version", "check --json --config ../../tokenfuse.yaml": "notes", "completion zsh --json": "script", "schema --json": "$schema", "exposure --json --config ../../tokenfuse.yaml": "summary",
	} {
		got := command(t, strings.Fields(args)...)
		var answer map[string]any
		err := json.Unmarshal([]byte(got.stdout), &answer)
		check.That(t, err == nil && got.code == 0 && got.stderr == "" && answer[member] != nil, "%s: %v\n%.500s%s", args, err, got.stdout, got.stderr)
	}
}

// Who opens the fuse without a time is asked, if somebody is there.
func TestOpenFuseAsks(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{"\n": "1h0m0s, assumed", "": "1h0m0s, assumed", "1d\n": "24h0m0s", "for ever\n": "none", "soon\n": "error"} {
		var out bytes.Buffer
		c := fuseSetCommand{State: "open"}
		assumed, err := c.end(streams{err: &out, person: strings.NewReader(said)})
		got := "none"
		switch {
		case err != nil:
			got = "error"
		case assumed:
			got = c.For.String() + ", assumed"
		case c.For != nil:
			got = c.For.String()
		}
		check.That(t, got == want && strings.Contains(out.String(), "For how long?"), "%q: %s, want %s; asked %q", said, got, want, out.String())
	}
}
