// Package tokens counts the tokens of texts as model providers bill them.
//
// Guarantees: for o200k_base and cl100k_base the count is exactly that of OpenAI's
// tiktoken. Special tokens such as <|endoftext|> count as plain text, as they do in the
// messages of an API call. For any other tokenizer, upper_bound is never too low if the
// tokenizer makes at most one token of each byte, of the text or of its NFKC form.
// Whatever the text, time and memory are in proportion to its length; only a single
// word of n bytes takes time in proportion to n log n. Counting exactly allocates
// nothing in the steady state. Everything is safe for concurrent use.
//
// Texts must be valid UTF-8, because what is counted must be what is sent:
// repair a text first, then count and send the same bytes. Nothing else about
// them is trusted.
package tokens

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// The names of the tokenizers.
const (
	o200kBase  = "o200k_base"
	cl100kBase = "cl100k_base"
	upperBound = "upper_bound"
)

// The exact tokenizers are built when they are first asked for. They are no more
// than this, so that a program which never calls New is linked without their
// tables.
var o200k, cl100k struct {
	once      sync.Once
	tokenizer *Tokenizer
}

// Names gives the names that New knows: o200k_base and cl100k_base, which are
// exact, and upper_bound, for any other tokenizer.
func Names() []string { return []string{o200kBase, cl100kBase, upperBound} }

// Tokenizer counts the tokens of texts.
type Tokenizer struct {
	name    string
	counter counter
	framing framing
}

// counter is a way to count: encoding or bound. Their cut is what Cut is, but
// may yet hold a little more than the budget.
type counter interface {
	count(text string) int
	cut(text string, budget int) string
}

// New gives the tokenizer of that name. The first call for a name prepares
// its tables, which takes about a millisecond; later calls share them.
// The error names the tokenizers that are known.
func New(name string) (*Tokenizer, error) {
	switch name {
	case o200kBase:
		o200k.once.Do(func() {
			o200k.tokenizer = &Tokenizer{name, newEncoding(splitO200k, o200kFile, o200kIndex), openAIFraming}
		})
		return o200k.tokenizer, nil
	case cl100kBase:
		cl100k.once.Do(func() {
			cl100k.tokenizer = &Tokenizer{name, newEncoding(splitCL100k, cl100kFile, cl100kIndex), openAIFraming}
		})
		return cl100k.tokenizer, nil
	case upperBound:
		return UpperBound(), nil
	}
	return nil, fmt.Errorf("unknown tokenizer %q: known are %s", name, strings.Join(Names(), ", "))
}

// UpperBound gives the tokenizer upper_bound, which needs no tables.
func UpperBound() *Tokenizer { return bounding }

var bounding = &Tokenizer{upperBound, bound{}, boundFraming}

// Name gives the name that the tokenizer was asked for by.
func (t *Tokenizer) Name() string { return t.name }

// Exact reports whether Count is the true number rather than an upper bound.
func (t *Tokenizer) Exact() bool { return t.name != upperBound }

// Count gives the number of tokens of a text alone, without framing.
func (t *Tokenizer) Count(text string) int { return t.counter.count(text) }

// Cut gives a prefix of text that ends between two characters and whose Count is
// at most budget: all of text if that fits, else about as much as fits, but not
// always the longest such prefix. It is empty for a budget of 0 or less.
func (t *Tokenizer) Cut(text string, budget int) string {
	if budget <= 0 {
		return ""
	}
	prefix := t.counter.cut(text, budget)
	// The end of a text counts differently from the same characters within it.
	// Where that makes a token more, ever larger steps back bound the recounts.
	for back := 1; t.Count(prefix) > budget; back *= 2 {
		prefix = prefix[:characterStart(prefix, max(len(prefix)-back, 0))]
	}
	return prefix
}

// characterStart gives the last place at or before i, which is at most len(s),
// where a character of s starts or s ends.
func characterStart(s string, i int) int {
	for 0 < i && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}
