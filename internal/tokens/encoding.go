package tokens

import "sync"

// encoding counts exactly, as tiktoken does: a text is split into pieces, and a
// piece that is not a token as a whole is merged into tokens from its bytes.
type encoding struct {
	split      func(text string) int // the length of the first piece
	vocabulary *vocabulary
	mergers    sync.Pool // of *merger
}

func newEncoding(split func(string) int, file, index string) *encoding {
	return &encoding{
		split:      split,
		vocabulary: newVocabulary(file, index),
		mergers:    sync.Pool{New: func() any { return new(merger) }},
	}
}

func (e *encoding) count(text string) int {
	m := e.mergers.Get().(*merger)
	defer e.mergers.Put(m)
	tokens := 0
	for len(text) > 0 {
		end := e.split(text)
		tokens += e.countPiece(m, text[:end])
		text = text[end:]
	}
	return tokens
}

// countPiece leaves the tokens of piece in m if they are more than one.
func (e *encoding) countPiece(m *merger, piece string) int {
	if e.vocabulary.rank(piece) != noRank {
		return 1
	}
	return m.merge(e.vocabulary, piece)
}

// cut ends text after the last token within the budget, or before it if that
// ends within a character.
func (e *encoding) cut(text string, budget int) string {
	// What is certainly too much need not be looked at.
	if longest := e.vocabulary.longest; len(text)/longest > budget {
		text = text[:characterStart(text, budget*longest)]
	}
	m := e.mergers.Get().(*merger)
	defer e.mergers.Put(m)
	for start := 0; start < len(text); {
		end := start + e.split(text[start:])
		tokens := e.countPiece(m, text[start:end])
		if tokens > budget {
			if budget > 0 {
				start += m.end(budget)
			}
			return text[:characterStart(text, start)]
		}
		budget -= tokens
		start = end
	}
	return text
}
