package tokens

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		tokenizer := must(t, name)
		if tokenizer.Name() != name || tokenizer.Exact() != (name != "upper_bound") {
			t.Errorf("%s gives name %s, exact %v", name, tokenizer.Name(), tokenizer.Exact())
		}
		again := must(t, name)
		check.That(t, again == tokenizer, "%s is built twice", name)
	}
	_, err := New("p50k_base")
	check.Must(t, err != nil, "p50k_base is known")
	for _, name := range append(Names(), "p50k_base") {
		check.That(t, strings.Contains(err.Error(), name), "%q does not name %s", err, name)
	}
}

// OpenAI's cookbook counts a chat like this, with encode for len(encode(...)).
func cookbook(encode func(string) int, messages [][2]string) int {
	const tokensPerMessage = 3
	n := 0
	for _, m := range messages {
		n += tokensPerMessage
		n += encode(m[0]) // role
		n += encode(m[1]) // content
	}
	return n + 3 // every reply is primed with <|start|>assistant<|message|>
}

func TestFraming(t *testing.T) {
	t.Parallel()
	messages := [][2]string{
		{"system", "You are a helpful, pattern-following assistant."},
		{"developer", ""},
		{"user", "This late pivot means we don't have time to boil the ocean."},
		{"assistant", "人工智能"},
		{"user", "<|im_end|>"},
	}
	bound := must(t, upperBound)
	most := bound.PerReply()
	for _, m := range messages {
		most += bound.PerMessage() + bound.Count(m[1])
	}
	for _, name := range []string{o200kBase, cl100kBase} {
		tokenizer := must(t, name)
		for _, role := range []string{"system", "developer", "user", "assistant"} {
			check.Equal(t, tokenizer.Count(role), 1, "%s: role %s is … tokens, PerMessage takes it for 1", name, role)
		}
		got := tokenizer.PerReply()
		for _, m := range messages {
			got += tokenizer.PerMessage() + tokenizer.Count(m[1])
		}
		want := cookbook(tokenizer.Count, messages)
		check.That(t, got == want, "%s: a chat of %d tokens, the cookbook says %d", name, got, want)
		check.That(t, got <= most, "%s: a chat of %d tokens, above the bound of %d", name, got, most)
	}
	check.That(t, bound.PerMessage() == 12 && bound.PerReply() == 64, "the bound frames with %d and %d", bound.PerMessage(), bound.PerReply())
}

var cutTexts = []string{
	"", "a", english, chinese, english + chinese,
	strings.Repeat("a", 5000),
	strings.Repeat("don't it's  we'll\n", 200),
	strings.Repeat(" \n  \t ", 500) + "x",
	strings.Repeat("👩‍👩‍👧‍👦🇩🇪", 100),
	strings.Repeat("\U0010ffff", 300),
	strings.Repeat("\ufdfa", 300),
	strings.Repeat("\u0301", 1000),
	strings.Repeat("e\u0301\u20dd", 300),
	strings.Repeat("\x7f", 2000),
	randomLetters(3000),
	// Once the text ends with them, its last spaces are one piece, which here
	// has a token more than the pieces that they are before a letter.
	"\n1\t \u2003!",
	"x!\t \u20031\u2003\u00a01\u20031 \t\t\u00a0! !",
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		tokenizer := must(t, name)
		for _, text := range cutTexts {
			all := tokenizer.Count(text)
			budgets := []int{math.MinInt, -1, 0, 100, 256, 1000, all - 1, all, all + 1, math.MaxInt}
			for budget := range 50 {
				budgets = append(budgets, budget)
			}
			for _, budget := range budgets {
				cut := tokenizer.Cut(text, budget)
				checkCut(t, tokenizer, text, cut, budget)
				check.That(t, budget < all || cut == text,
					"%s: %.20q was cut to %d bytes for a budget of %d, but has only %d tokens", name, text, len(cut), budget, all)
				// At most the next character is missing, or what is normalized
				// together: a base and its first 30 marks.
				slack := 3
				if !tokenizer.Exact() {
					slack = 66
				}
				n := tokenizer.Count(cut)
				check.That(t, budget >= all || n >= max(budget, 0)-slack, "%s: %.20q was cut to %d tokens for a budget of %d", name, text, n, budget)
			}
		}
	}
}

func checkCut(t *testing.T, tokenizer *Tokenizer, text, cut string, budget int) {
	t.Helper()
	check.That(t, strings.HasPrefix(text, cut), "%s: %.20q is no prefix of %.20q", tokenizer.Name(), cut, text)
	check.That(t, !utf8.ValidString(text) || utf8.ValidString(cut), "%s: %.20q was cut within a character for a budget of %d", tokenizer.Name(), text, budget)
	n := tokenizer.Count(cut)
	check.That(t, n <= max(budget, 0), "%s: %.20q was cut to %d tokens for a budget of %d", tokenizer.Name(), text, n, budget)
}

// Everybody counts on the same tokenizers at once and gets the same numbers.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	counts := func() []int {
		var all []int
		for _, name := range Names() {
			tokenizer, err := New(name)
			if err != nil {
				t.Error(err)
				return nil
			}
			for _, text := range cutTexts {
				all = append(all, tokenizer.Count(text), len(tokenizer.Cut(text, 50)))
			}
		}
		return all
	}
	var wait sync.WaitGroup
	results := make([][]int, 8)
	for i := range results {
		wait.Go(func() { results[i] = counts() })
	}
	wait.Wait()
	want := counts()
	for _, got := range results {
		check.That(t, slices.Equal(got, want), "counted %v, alone %v", got, want)
	}
}

func FuzzCount(f *testing.F) {
	for _, text := range cutTexts {
		f.Add(text[:min(len(text), 200)], 7)
	}
	f.Add("\xff\xc0\x80\xed\xa0\x80", 2)
	f.Fuzz(func(t *testing.T, text string, budget int) {
		most := must(t, upperBound).Count(text)
		for _, name := range Names() {
			tokenizer := must(t, name)
			n := tokenizer.Count(text)
			check.That(t, n <= most && (n == 0) == (text == ""), "%s: %q has %d tokens, the bound says %d", name, text, n, most)
			checkCut(t, tokenizer, text, tokenizer.Cut(text, budget), budget)
			checkCut(t, tokenizer, text, tokenizer.Cut(text, budget&0xff), budget&0xff)
			if e, ok := tokenizer.counter.(*encoding); ok {
				var decoded strings.Builder
				for _, id := range e.ids(text) {
					decoded.WriteString(e.vocabulary.token(id))
				}
				check.That(t, decoded.String() == text, "%s: the tokens of %q say %q", name, text, decoded.String())
			}
		}
	})
}
