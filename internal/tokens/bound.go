package tokens

import "golang.org/x/text/unicode/norm"

// bound counts for any tokenizer: the bytes of a text, or those of its NFKC form
// if they are more.
//
// A tokenizer that falls back to bytes makes at most one token of each byte. One that
// does not fall back makes tokens of characters, and so fewer still. But many tokenizers
// normalize a text first. NFKC is the normal form that can make a text longest: U+FDFA
// grows from 3 bytes to 33. Tokens that a tokenizer adds at the start of a text are
// covered by the framing.
type bound struct{}

func (bound) count(text string) int {
	size := norm.NFKC.QuickSpanString(text) // the start that NFKC leaves as it is
	if size == len(text) {
		return size
	}
	// An iterator that is used again keeps something of its last text.
	var it norm.Iter
	it.InitString(norm.NFKC, text[size:])
	for !it.Done() {
		size += len(it.Next())
	}
	return max(size, len(text))
}

// cut ends text before the first character, with the marks on it, that goes
// beyond the budget in either form.
func (bound) cut(text string, budget int) string {
	text = text[:characterStart(text, min(budget, len(text)))]
	start := norm.NFKC.QuickSpanString(text)
	if start == len(text) {
		return text
	}
	size := start
	var it norm.Iter
	it.InitString(norm.NFKC, text[start:])
	for !it.Done() {
		end := start + it.Pos()
		size += len(it.Next())
		if size > budget {
			return text[:end]
		}
	}
	return text
}
