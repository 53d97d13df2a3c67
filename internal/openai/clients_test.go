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
