package count

// textFraming is what a server may put around a text that it embeds, in tokens: the marks
// of its beginning and its end, and a word for what the vector is for. OpenAI's own models,
// whose tokens are counted exactly, have none.
const textFraming = 8

// Text gives the tokens that a text costs to embed, at most: exactly those that are billed,
// with an exact tokenizer.
func (m Model) Text(text string) int64 {
	n := int64(m.Tokenizer.Count(text))
	if !m.Tokenizer.Exact() {
		n += textFraming
	}
	return n
}
