package bucket

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// docs/bucket.md says which test finds what each term of a write prevents: they exist,
// and so do the files that it and the package comment send a reader to.
func TestThePageNamesWhatExists(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(name)
		check.OK(t, err)
		return string(b)
	}
	files, err := filepath.Glob("*_test.go")
	check.OK(t, err)
	var tests strings.Builder
	for _, f := range files {
		tests.WriteString(read(f))
	}
	page := read("../../docs/bucket.md")
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(page, -1)
	check.That(t, len(named) >= 20, "only %d tests are named", len(named))
	for _, name := range named {
		check.That(t, strings.Contains(tests.String(), "func "+name[1]+"(t *testing.T)"), "there is no %s", name[1])
	}
	for _, name := range regexp.MustCompile(`\b\w+\.go\b`).FindAllString(page+read("doc.go"), -1) {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}
