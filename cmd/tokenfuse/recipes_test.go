package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The rules of images that docs/providers.md names are rules; docs/counting.md has all.
func TestNamedRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/providers.md")
	check.OK(t, err)
	_, after, _ := strings.Cut(string(page), "the `rule` of the provider")
	list, _, _ := strings.Cut(after, ":\n")
	named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1)
	check.Must(t, len(named) > 0, "no rule is named in %q", list)
	for _, name := range named {
		check.That(t, slices.Contains(count.ImageRules(), name[1]), "%s is no rule", name[1])
	}
}

// Each recipe of docs/providers.md is right as it is printed, and nothing is noted of it
// but who may charge for errors.
func TestRecipes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/providers.md")
	check.OK(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	check.Must(t, len(blocks) == 13, "%d blocks", len(blocks))
	rest := blocks[0][1]
	for _, block := range blocks[1:] {
		got := command(t, "check", "--config", writeFile(t, block[1]+rest))
		if got.code != 0 {
			t.Errorf("%s\n%s%s", block[1], got.stdout, got.stderr)
		}
		for line := range strings.Lines(got.stdout) {
			if about := strings.HasPrefix(line, "note: providers.") || strings.HasPrefix(line, "note: models."); about && !strings.Contains(line, ".bills_errors is left out") &&
				!(strings.Contains(line, "stream_options is false") && strings.Contains(block[1], "api.mistral.ai")) {
				t.Errorf("%s\n%s", block[1], line)
			}
		}
	}
}
