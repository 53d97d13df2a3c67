package alarm

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var update = flag.Bool("update", false, "write testdata/message.txt afresh")

// incident is a page with something of everything.
func incident(t *testing.T) (*rig, Result) {
	t.Helper()
	g := beforeIncident(t)
	return g, g.tick()
}

// beforeIncident is a rig of which the next tick pages with something of everything.
func beforeIncident(t *testing.T) *rig {
	t.Helper()
	g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar, Factor: 4, Fuse: "challenge"})
	for i, cents := range []int{80, 190, 700, 120, 195, 100, 90, 110} { // of eight days
		g.hoursAgo(60+24*i, cents)
	}
	for _, c := range []call{
		{620, "net#4f1d0a9c27be", "anonymous", 50 * time.Minute},
		{410, "net#4f1d0a9c27be", "anonymous", 2 * time.Minute},
		{95, "net#91c3aa07d2e5", "anonymous", 3 * time.Minute},
		{12, "pass#Q7ZK2M", "anonymous", 30 * time.Minute},
		{100, "user#123", "user", 12 * time.Minute},
		{3, "user#o'hara;$(x)", "user", 20 * time.Minute},
	} {
		g.spend(c)
	}
	return g
}

func TestMessage(t *testing.T) {
	t.Parallel()
	g, _ := incident(t)
	m := g.inbox.Messages()[0]
	if *update {
		check.OK(t, os.WriteFile(messageFile, []byte(asShown(m.Subject, m.Message)), 0o644))
	}
	wantMessage(t, m.Subject, m.Message)
}

// messageFile is what the page of an incident says, as docs/money.md shows it.
const messageFile = "testdata/message.txt"

func asShown(subject, message string) string { return "Subject: " + subject + "\n\n" + message }

func wantMessage(t *testing.T, subject, message string) {
	t.Helper()
	want, err := os.ReadFile(messageFile)
	check.OK(t, err)
	diff := cmp.Diff(string(want), asShown(subject, message))
	check.That(t, diff == "", "the message is not as in %s (-update writes it):\n%s", messageFile, diff)
}

func TestReportForMachines(t *testing.T) {
	t.Parallel()
	g, r := incident(t)
	wantAttributes(t, g.inbox.Messages()[0].Attributes, r)
}

// wantAttributes asserts what machines get of an incident of which r is the result.
func wantAttributes(t *testing.T, a map[string]string, r Result) {
	t.Helper()
	for name, want := range map[string]string{"event": "opened", "level": "1", "spend_usd": "12.4", "threshold_usd": "7.6"} {
		check.Equal(t, a[name], want, "attribute %s is", name)
	}
	if len(a) != 5 {
		t.Errorf("attributes %v", slices.Collect(maps.Keys(a)))
	}
	var report Result
	d := json.NewDecoder(strings.NewReader(a["report"]))
	d.DisallowUnknownFields()
	check.OK(t, d.Decode(&report))
	r.threshold = 0
	check.Equal(t, cmp.Diff(r, report, cmp.AllowUnexported(Result{})), "", "the report differs from the result")
	top := report.Top[0]
	check.That(t, top.Identity == "net#4f1d0a9c27be" && top.USD == "10.3" && top.Calls == 2 && top.Percent == 83, "top spender %+v", top)
	check.That(t, report.ProjectedUSD == "30.3" && report.NormalPeakUSD == "1.9" && report.Tiers["user"].USD == "1.03", "%+v", report)
}

func TestSubjectsAreShortAndPlain(t *testing.T) {
	t.Parallel()
	p := page{threshold: threshold{amount: math.MaxInt64}, sum: ledger.Summary{Total: ledger.Amount{Cost: math.MaxInt64}}}
	seen := map[string]bool{}
	for _, p.event = range []event{opened, escalated, repeated, cleared} {
		s := p.subject(Result{Level: 4})
		check.That(t, len(s) <= 100 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }), "%d characters: %q", len(s), s)
		check.That(t, !seen[s], "%q says two things", s)
		seen[s] = true
	}
}

func TestEachEventIsSaid(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	for minute, cents := range map[int]int{0: 900} {
		g.at(minute)
		g.spend(call{cents: cents})
	}
	g.tick()
	g.at(5)
	g.spend(call{cents: 900})
	g.tick()
	g.at(55)
	g.spend(call{cents: 900})
	g.tick()
	g.at(65)
	g.tick()
	g.at(120)
	g.tick()
	messages := g.inbox.Messages()
	wants := []string{"Spending is above its threshold.", "Spending has reached 2 times its threshold.", "Spending is still not back to normal.", "Spending is back to normal."}
	if len(messages) != len(wants) {
		t.Fatalf("%v", g.pages())
	}
	for i, want := range wants {
		check.That(t, strings.HasPrefix(messages[i].Message, want+"\n"), "message %d begins with %.60q, want %q", i, messages[i].Message, want)
	}
}

func TestEndpointIsOptional(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.handler.Endpoint = ""
	g.spend(call{cents: 900})
	g.tick()
	if m := g.inbox.Messages()[0].Message; !strings.Contains(m, "\n    tokenfuse fuse set closed\n") {
		t.Error(m)
	}
}

func TestDollars(t *testing.T) {
	t.Parallel()
	for p, want := range map[price.Pico]string{
		0: "$0.00", 1: "under $0.01", price.Dollar / 100: "$0.01", 12_404_999_999_999: "$12.40", 12_405_000_000_000: "$12.41",
		8 * price.Dollar: "$8.00", math.MaxInt64: "$9223372.04",
	} {
		check.Equal(t, dollars(p), want, "%d", p)
	}
}

func TestComparable(t *testing.T) {
	t.Parallel()
	for p, want := range map[price.Pico]string{
		0: "0", 4_999_999: "0", 5_000_000: "0.00001", 12_400_000_000_000: "12.4", 12_345_674_999_999: "12.34567", 12_345_675_000_000: "12.34568",
		math.MaxInt64: "9223372.03685",
	} {
		check.Equal(t, comparable(p), want, "%d", p)
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                 "''",
		"user":             "user",
		"a@example.com":    "a@example.com",
		"user#123":         "'user#123'",
		"user#o'hara":      `'user#o'\''hara'`,
		"$(reboot)`id`":    "'$(reboot)`id`'",
		"user#a\nRun this": `$'user#a\012Run this'`,
		"it's\\ü1":         `$'it\'s\\\303\2741'`,
		"\x00\x7f":         `$'\000\177'`,
		"https://x/y?a=b":  "'https://x/y?a=b'",
		"https://abc/prod": "https://abc/prod",
	} {
		check.Equal(t, quote(in), want, "%q", in)
	}
}

// A shell gives back what was quoted.
func TestQuoteInAShell(t *testing.T) {
	t.Parallel()
	var words, script strings.Builder
	for _, word := range []string{"user#123", "user#o'hara", "$(reboot)`id`\"$HOME\"", "a b;c|d&e>f*?[!]~\\n", "-x", ""} {
		fmt.Fprintf(&words, "<%s>", word)
		fmt.Fprintf(&script, "printf '<%%s>' %s\n", quote(word))
	}
	out, err := exec.Command("sh", "-c", script.String()).Output()
	check.That(t, err == nil && string(out) == words.String(), "the shell read %q, %v, want %q", out, err, words.String())
}
