package tokens

import "strings"

// LongestToken is how many bytes of text one token is assumed to stand for at most,
// whatever the tokenizer. The longest token of the known vocabularies has 128 bytes: it is
// 128 blanks. With this bound, a text has a least number of tokens even where its tokenizer
// is not known.
const LongestToken = 128

// AtLeast gives a number of tokens that text certainly has. If the tokenizer is exact,
// that is the number of its tokens. Otherwise it is the length of text, divided by
// LongestToken and rounded up.
func (t *Tokenizer) AtLeast(text string) int {
	if t.Exact() {
		return t.Count(text)
	}
	return leastOf(len(text))
}

func leastOf(size int) int { return (size + LongestToken - 1) / LongestToken }

// CutAtLeast is Cut for AtLeast: what it cuts off is certainly beyond the budget.
func (t *Tokenizer) CutAtLeast(text string, budget int) string {
	switch {
	case t.Exact():
		return t.Cut(text, budget)
	case budget <= 0:
		return ""
	case leastOf(len(text)) <= budget:
		return text
	}
	return text[:characterStart(text, budget*LongestToken)]
}

// Running counts a text that arrives in pieces, as an answer does. The time that this
// takes is in proportion to the length of the text, however often the count is asked for.
// A Running is for one goroutine.
type Running struct {
	tokenizer *Tokenizer
	text      strings.Builder
	// settled is the length of the beginning that has been counted for good, and
	// tokens its tokens.
	settled, tokens int
	next            int // the length at which Exceeds looks again
}

// Running begins an empty text.
func (t *Tokenizer) Running() *Running { return &Running{tokenizer: t} }

// Add appends to the text.
func (r *Running) Add(piece string) { r.text.WriteString(piece) }

// Text gives all of the text so far.
func (r *Running) Text() string { return r.text.String() }

// Len gives its length in bytes.
func (r *Running) Len() int { return r.text.Len() }

// Count is Tokenizer.Count of the text so far.
func (r *Running) Count() int {
	tail := r.text.String()[r.settled:]
	if end := lastSeam(tail); end > 0 && r.tokenizer.Exact() { // bounds of parts may add up to more
		r.tokens += r.tokenizer.Count(tail[:end])
		r.settled += end
		tail = tail[end:]
	}
	return r.tokens + r.tokenizer.Count(tail)
}

// AtLeast is Tokenizer.AtLeast of the text so far.
func (r *Running) AtLeast() int {
	if r.tokenizer.Exact() {
		return r.Count()
	}
	return leastOf(r.Len())
}

// Exceeds reports whether the text certainly has more than limit tokens. It may notice a
// little late: a text without words may first grow by another quarter.
func (r *Running) Exceeds(limit int) bool {
	size := r.Len()
	if !r.tokenizer.Exact() {
		return leastOf(size) > limit
	}
	// Each token has a byte at least, so that most answers are never looked at here.
	if r.tokens+size-r.settled <= limit || size < r.next {
		return false
	}
	n := r.Count()
	// What is settled is not counted again, but a text without seams would be.
	r.next = size + (size-r.settled)/4
	return n > limit
}

// lastSeam gives the last place in text between a letter and a space, 0 if there is
// none. No exact tokenizer makes a token across such a place, so the tokens of the two
// sides add up to those of the whole.
func lastSeam(text string) int {
	for i := len(text) - 1; i > 0; i-- {
		if isSpace(text[i]) && isLetter(text[i-1]) {
			return i
		}
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' }

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
