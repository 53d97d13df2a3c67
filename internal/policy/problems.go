package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in the file.
type Problem struct {
	Line    int    // 1-based; of a missing value, the line of what should hold it
	Path    string // dotted, list items in brackets: cors.origins[0]; empty: the file
	Message string // says what is right; repeats no value that could be a secret
}

// String gives "line 12: tiers.user.limits: ...".
func (p Problem) String() string {
	if p.Path == "" {
		return fmt.Sprintf("line %d: %s", p.Line, p.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", p.Line, p.Path, p.Message)
}

// Problems are all mistakes of a file, by line.
type Problems []Problem

// Error gives one mistake a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
}
