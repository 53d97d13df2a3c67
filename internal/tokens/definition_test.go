package tokens

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Each encoding's expression as tiktoken has it, up to its white space, which needs a
// look-ahead: see pieceByDefinition. Its classes are those of Go's Unicode.
var expressions = map[string]*regexp.Regexp{
	o200kBase: regexp.MustCompile(`^(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\t-\r\x{85}\p{Z}\p{L}\p{N}]+[\r\n/]*)`),
	cl100kBase: regexp.MustCompile(`^(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\t-\r\x{85}\p{Z}\p{L}\p{N}]+[\r\n]*)`),
}

// pieceByDefinition is the length of the first piece of s, by the expression and, for
// \s*[\r\n]+|\s+(?!\S)|\s+, by its words.
func pieceByDefinition(name, s string) int {
	if end := len(expressions[name].FindString(s)); end > 0 {
		return end
	}
	rest := strings.TrimLeftFunc(s, unicode.IsSpace)
	run := s[:len(s)-len(rest)]
	_, last := utf8.DecodeLastRuneInString(run)
	switch line := strings.LastIndexAny(run, "\r\n"); {
	case line >= 0:
		return line + 1
	case rest == "" || last == len(run):
		return len(run)
	}
	return len(run) - last
}

// FuzzDefinition counts again in the plainest way: tiktoken's expressions by package
// regexp, and the lowest pair joined until there is none.
func FuzzDefinition(f *testing.F) {
	for _, text := range append([]string{"It's  the\n\n  LAST one, isn't it?\r\n/x/\u3000 \u017f'\u017f 12345", "\u0301a \u0301", "DŽdž ǅ'LLʰ中ก"}, cutTexts...) {
		f.Add(text[:min(len(text), 200)])
	}
	f.Fuzz(func(t *testing.T, text string) {
		// What Go's Unicode does not know may be a letter to the encoding's; and quadratic
		// is quadratic.
		unknown := func(r rune) bool {
			return !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.C)
		}
		if len(text) > 1<<10 || !utf8.ValidString(text) || strings.ContainsFunc(text, unknown) {
			return
		}
		for name := range expressions {
			v, want := must(t, name).counter.(*encoding).vocabulary, 0
			for rest := text; rest != ""; {
				end := pieceByDefinition(name, rest)
				want += len(mergeByDefinition(v, rest[:end]))
				rest = rest[end:]
			}
			check.Equal(t, must(t, name).Count(text), want, "%s: tokens of %q", name, text)
		}
	})
}
