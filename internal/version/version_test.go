package version

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The number is that of the changelog's newest release, or, as long as there are
// changes that are not released, a later one with -dev.
func TestNumberIsThatOfTheChangelog(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sections, ok := strings.Cut(string(text), "\n## [Unreleased]\n")
	if !ok {
		t.Fatal("CHANGELOG.md has no section Unreleased")
	}
	unreleased, released, _ := strings.Cut(sections, "\n## [")
	newest, _, _ := strings.Cut(released, "]")
	base, dev := strings.CutSuffix(Number, "-dev")
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(base) {
		t.Errorf("%q is not a version", Number)
	}
	if changed := strings.Contains(unreleased, "\n- "); changed != dev || dev == (base == newest) {
		t.Errorf("the number is %s, the newest release %q, unreleased changes: %t", Number, newest, changed)
	}
}
