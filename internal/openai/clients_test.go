package openai

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// docs/clients.md lists every code with its status and whether a client should try again,
// and no other.
func TestDocumentedCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/clients.md")
	check.OK(t, err)
	_, table, _ := strings.Cut(string(page), "\n## Errors\n")
	table, _, _ = strings.Cut(table, "\n## ")
	shown := map[Code]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d+) \\| (yes|no|if the wait is at most 10 s) \\|").FindAllStringSubmatch(table, -1) {
		shown[Code(row[1])] = row[2] + " " + row[3]
	}
	for code, c := range codes {
		again := map[bool]string{true: "yes", false: "no"}[c.retry]
		if code == RateLimitExceeded {
			again = "if the wait is at most 10 s"
		}
		want := fmt.Sprint(c.status, " ", again)
		check.That(t, shown[code] == want, "docs/clients.md tells of %s %q, want %q", code, shown[code], want)
		delete(shown, code)
	}
	for code := range shown {
		t.Errorf("docs/clients.md tells of %s, which is no code", code)
	}
}

// docs/http.md lists every field of a request.
func TestDocumentedFields(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/http.md")
	check.OK(t, err)
	_, table, _ := strings.Cut(string(page), "\n## Requests\n")
	table, _, _ = strings.Cut(table, "\n**Messages**")
	shown := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			name = strings.Trim(name, "`")
			check.That(t, chatFields[name] != nil, "docs/http.md tells of %s, which is no field", name)
			shown[name] = true
		}
	}
	for _, name := range chatNames {
		check.That(t, shown[name], "docs/http.md does not tell of %s", name)
	}
}
