package tokens

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Whatever the pieces, a running count is that of the whole text.
func TestRunningIsExact(t *testing.T) {
	t.Parallel()
	known := map[string]*Tokenizer{}
	for _, name := range Names() {
		known[name] = must(t, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		tokenizer := known[rapid.SampledFrom(Names()).Draw(t, "tokenizer")]
		alphabet := rapid.SampledFrom([]string{
			"a", "B", "don't", "'", "t", "s", " ", "  ", "\n", "\r\n", "\t", "1", "234", ".", "/", "é", "人", "\u0301", "\ufdfa", "👩‍👩‍👧", " the", "word ",
		})
		r, whole := tokenizer.Running(), ""
		for range rapid.IntRange(1, 30).Draw(t, "pieces") {
			piece := strings.Join(rapid.SliceOfN(alphabet, 0, 6).Draw(t, "piece"), "")
			r.Add(piece)
			whole += piece
			if rapid.Bool().Draw(t, "asked") {
				if got, want := r.Count(), tokenizer.Count(whole); got != want {
					t.Fatalf("%s: %q has %d tokens, not %d", tokenizer.Name(), whole, want, got)
				}
			}
			if r.Text() != whole || r.Len() != len(whole) || r.AtLeast() != tokenizer.AtLeast(whole) {
				t.Fatalf("%s: %q came out as %q, %d bytes, %d tokens at least, not %d",
					tokenizer.Name(), whole, r.Text(), r.Len(), r.AtLeast(), tokenizer.AtLeast(whole))
			}
		}
	})
}

// An answer within its limit is never said to exceed it, and one that goes on is found
// out: at once where it has words, else before it has grown by another third.
func TestRunningExceeds(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{english, chinese, randomLetters(200), "a", " ", "\u007f", "👩‍👩‍👧‍👦", "12345", "\n "} {
		characters := strings.Split(unit, "")
		for _, name := range Names() {
			for _, limit := range []int{1, 26, 300, 2000} {
				tokenizer := must(t, name)
				r := tokenizer.Running()
				for i := 0; !r.Exceeds(limit); i++ {
					r.Add(characters[i%len(characters)])
				}
				n := tokenizer.AtLeast(r.Text())
				check.That(t, n > limit, "%s: %.20q has %d tokens and is said to exceed %d", name, unit, n, limit)
				check.That(t, n <= limit+limit/3+60, "%s: %.20q has %d tokens before it is found to exceed %d", name, unit, n, limit)
			}
		}
	}
}

// What no tokenizer can make of a text, nobody may be held to.
func TestAtLeast(t *testing.T) {
	t.Parallel()
	unknown := UpperBound()
	for _, name := range []string{o200kBase, cl100kBase} {
		exact := must(t, name)
		longest := exact.counter.(*encoding).vocabulary.longest
		check.That(t, longest <= LongestToken, "%s has a token of %d bytes", name, longest)
		for _, text := range append(cutTexts, strings.Repeat(" ", 10_000), english, chinese) {
			if !utf8.ValidString(text) {
				continue
			}
			if least, n := unknown.AtLeast(text), exact.Count(text); least > n {
				t.Errorf("%.20q is said to have %d tokens at least and has %d in %s", text, least, n, name)
			}
			check.That(t, exact.AtLeast(text) == exact.Count(text), "%s: %.20q has another least number of tokens than its own", name, text)
		}
	}
	for _, text := range []string{"", strings.Repeat("x", 1000), strings.Repeat("人", 1000)} {
		for _, budget := range []int{-1, 0, 1, 2, 7, 8, 1000} {
			cut := unknown.CutAtLeast(text, budget)
			check.That(t, strings.HasPrefix(text, cut) && utf8.ValidString(cut) && unknown.AtLeast(cut) <= max(budget, 0),
				"%.10q is cut to %d bytes for %d tokens", text, len(cut), budget)
			check.That(t, cut == text || len(cut) >= budget*LongestToken-utf8.UTFMax,
				"%.10q is cut to %d bytes for %d tokens: more may have fitted", text, len(cut), budget)
		}
	}
}

// A running count allocates nothing of its own and looks at each byte about once.
func BenchmarkRunning(b *testing.B) {
	words := strings.SplitAfter(strings.Repeat(english, 10), " ")
	for _, name := range Names() {
		tokenizer := must(b, name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := tokenizer.Running()
				for _, w := range words {
					r.Add(w)
					r.Exceeds(500)
				}
				r.Count()
			}
			b.SetBytes(int64(10 * len(english)))
		})
	}
}
