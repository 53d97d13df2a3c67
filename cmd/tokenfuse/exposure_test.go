package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/exposure"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestExposure(t *testing.T) {
	t.Parallel()
	// A call costs at most 100 x $1 + 100 x $2 a million = $0.0003; a client has
	// 2,000 tokens in an hour.
	file := writeFile(t, goodConfig+"pools: {all: {usd: 5, per: 1h}}\n")
	got := command(t, "exposure", "--config", file)
	check.Must(t, got.code == 0 && got.stderr == "", "%+v", got)
	for _, want := range []string{
		// Without a limit of its network a client is whatever it calls itself.
		"One script can cost you $8.21 an hour today; with this configuration $5.00, and everybody together at most $5.00.\n",
		"  one client  ", "  0.004  ", "Suggested alarm: threshold_usd: \"2\".",
	} {
		check.That(t, strings.Contains(got.stdout, want), "no %q in\n%s", want, got.stdout)
	}

	got = command(t, "exposure", "--config", file, "--json")
	var report exposure.Report
	err := json.Unmarshal([]byte(got.stdout), &report)
	check.Must(t, err == nil && got.code == 0 && got.stderr == "", "%v, %+v", err, got)
	check.That(t, report.Everybody.String() == "5.00" && len(report.Lines) == 2*4+1, "%+v", report)
}

func TestExposureFails(t *testing.T) {
	t.Parallel()
	bad := writeFile(t, goodConfig+"frills: true\n")
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"exposure --config " + bad, 1, "line 6: frills"},
		{"exposure --json --config " + bad, 1, `has 1 mistake","code":"mistakes","mistakes":["line 6: frills`},
		{"exposure --config no-such.yaml", 1, "no-such.yaml: no such file"},
		{"exposure --frills", 2, "Try: tokenfuse exposure --help"},
		{"exposure tokenfuse.yaml", 2, "tokenfuse.yaml"},
	} {
		got := command(t, strings.Fields(test.args)...)
		check.That(t, got.code == test.code && got.stdout == "" && strings.Contains(got.stderr, test.says), "%s: %+v", test.args, got)
	}
}
