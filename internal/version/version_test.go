package version

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The number is that of the changelog's newest release, or, as long as there are
// changes that are not released, a later one with -dev.
func TestNumberIsThatOfTheChangelog(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../CHANGELOG.md")
	check.OK(t, err)
	_, sections, ok := strings.Cut(string(text), "\n## [Unreleased]\n")
	check.Must(t, ok, "CHANGELOG.md has no section Unreleased")
	unreleased, released, _ := strings.Cut(sections, "\n## [")
	newest, _, _ := strings.Cut(released, "]")
	base, dev := strings.CutSuffix(Number, "-dev")
	check.That(t, regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(base), "%q is not a version", Number)
	changed := strings.Contains(unreleased, "\n- ")
	check.That(t, changed == dev && dev != (base == newest), "the number is %s, the newest release %q, unreleased changes: %t", Number, newest, changed)
}
