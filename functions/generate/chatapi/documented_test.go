package chatapi

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// docs/clients.md tells of every header that a page may read: of those that it may read
// since we say so, of one that every page may read, and of one that none may.
func TestDocumentedHeaders(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/clients.md")
	check.OK(t, err)
	_, table, _ := strings.Cut(string(page), "\n## Headers\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var shown []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(table, -1) {
		shown = append(shown, strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")...)
	}
	want := append(strings.Split(exposed, ", "), "Cache-Control", "Allow")
	slices.Sort(shown)
	slices.Sort(want)
	check.That(t, slices.Equal(shown, want), "docs/clients.md tells of\n%v, want\n%v", shown, want)
}
