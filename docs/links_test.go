// Package docs_test holds the documents to what they point at.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)|(?:src|srcset|href)="([^"]+)"`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Each relative link and each anchor of the documents leads somewhere.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	check.OK(t, err)
	pages = append(pages, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md")
	seen := 0
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(prose(t, page), ""), -1) {
			target := m[1] + m[2]
			if strings.Contains(target, ":") {
				continue // another site, which is not asked
			}
			seen++
			path, anchor, _ := strings.Cut(target, "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s: there is no such file", page, target)
			} else if anchor != "" && filepath.Ext(file) == ".md" {
				check.That(t, anchors(prose(t, file))[anchor], "%s: %s: there is no such heading", page, target)
			}
		}
	}
	check.That(t, seen > 50, "only %d links were found", seen)
}

// The index names each page.
func TestIndex(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	check.OK(t, err)
	index := prose(t, "README.md")
	for _, page := range pages {
		check.That(t, page == "README.md" || strings.Contains(index, "]("+page+")"), "docs/README.md does not name %s", page)
	}
}

// prose is a page without its blocks of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	check.OK(t, err)
	return fence.ReplaceAllString(string(text), "")
}

// anchors are made of headings in the way of GitHub.
func anchors(text string) map[string]bool {
	made := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(linked.ReplaceAllString(strings.TrimSpace(m[1]), "$1"))
		made[strings.ReplaceAll(dropped.ReplaceAllString(name, ""), " ", "-")] = true
	}
	return made
}
