package tokens

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestClassOf(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		c := classOf(r)
		check.Must(t, c != 0 && c&(c-1) == 0, "%U has class %b, want exactly one", r, c)
	}
	for _, c := range []struct {
		r    rune
		want class
	}{
		{'A', upperLetter}, {'ǅ', upperLetter}, {'a', lowerLetter}, {'ſ', lowerLetter},
		{'ʰ', otherLetter}, {'中', otherLetter}, {'ª', otherLetter},
		{'\u0301', mark}, {'\u0903', mark}, {'\u20dd', mark},
		{'1', number}, {'Ⅷ', number}, {'½', number},
		{' ', space}, {'\t', space}, {'\u0085', space}, {'\u00a0', space}, {'\u3000', space},
		{'\r', newline}, {'\n', newline},
		{'!', other}, {'\x7f', other}, {'\u200b', other}, {'\ufffd', other}, {unicode.MaxRune, other},
		{0x1c89, upperLetter}, // new in Unicode 16.0
		{0x2ebf0, otherLetter},
		{0x88f, other}, // a letter as of 17.0
	} {
		check.Equal(t, classOf(c.r), c.want, "%U has class", c.r)
	}
}

func pieces(split func(string) int, text string) []string {
	var all []string
	for len(text) > 0 {
		end := split(text)
		all = append(all, text[:end])
		text = text[end:]
	}
	return all
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, o200k, cl100k string }{
		// Contractions belong to the word in o200k_base only.
		{"don't", "don't", "don|'t"},
		{"DON'T", "DON'T", "DON|'T"},
		{"x'ſy", "x'ſ|y", "x|'ſ|y"},
		{"'sx", "'sx", "'s|x"},
		{"x'rq", "x|'rq", "x|'rq"},
		// Words break at a change of case in o200k_base only.
		{"camelCase", "camel|Case", "camelCase"},
		{"HTTPServer", "HTTPServer", "HTTPServer"},
		{"中A中", "中A中", "中A中"},
		// [upper]* gives back until [lower] has one.
		{"中AB", "中|AB", "中AB"},
		// A mark as prefix, as part of a word, and as a symbol.
		{"\u0301AB", "\u0301|AB", "\u0301AB"},
		{"a\u0301b", "a\u0301b", "a|\u0301b"},
		{"!!\u0301a", "!!\u0301|a", "!!\u0301|a"},
		{"12345", "123|45", "123|45"},
		{"a 1", "a| |1", "a| |1"},
		{" !?\n/\nx", " !?\n/\n|x", " !?\n|/\n|x"},
		// White space: the last line break, then the look-ahead.
		{"a   b", "a|  | b", "a|  | b"},
		{"a   ", "a|   ", "a|   "},
		{"a \n \n  b", "a| \n \n| | b", "a| \n \n| | b"},
		{"a\tb", "a|\tb", "a|\tb"},
		{"a \u00a01", "a| |\u00a0|1", "a| |\u00a0|1"},
	} {
		for _, e := range []struct {
			name  string
			split func(string) int
			want  string
		}{{o200kBase, splitO200k, c.o200k}, {cl100kBase, splitCL100k, c.cl100k}} {
			got := pieces(e.split, c.text)
			check.That(t, slices.Equal(got, strings.Split(e.want, "|")), "%s: %q is split into %q, want %q", e.name, c.text, got, e.want)
		}
	}
}

// A quarter of a megabyte takes some 2 ms. If that made splitting quadratic it
// would take minutes, so that the limit tells the two apart on a slow machine too.
func TestSplittingIsLinear(t *testing.T) {
	t.Parallel()
	const size, limit = 1 << 18, 10 * time.Second
	for _, unit := range []string{
		"A", "a", "Aa", "\u0301", "\u0301A", "A\u0301", "中A", "中AAAAAAAA", "!A", "ǅ", "1", "!", "/", "'", "'s", "'r",
		" ", "\n", " \n", "\n ", "\u00a0", "  \u2003", " !", "\x7f", "\U0010ffff",
	} {
		for _, text := range []string{
			strings.Repeat(unit, size/len(unit)),
			strings.Repeat(unit, size/len(unit)) + "x",
			"\n" + strings.Repeat(unit, size/len(unit)) + "AAAA",
			"\u0301" + strings.Repeat("A", size/2) + strings.Repeat(unit, size/2/len(unit)),
		} {
			for _, split := range []func(string) int{splitO200k, splitCL100k} {
				start := time.Now()
				for rest := text; len(rest) > 0; rest = rest[split(rest):] {
					if time.Since(start) > limit {
						t.Fatalf("splitting %q... was not done after %v", text[:16], limit)
					}
				}
			}
		}
	}
}
