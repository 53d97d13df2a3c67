package admission

import (
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// embed holds texts against the caps. Nobody's are cut: the vector of half a text looks
// like that of the whole, and would be kept and compared for years.
func (o *Offer) embed(texts []string) (*Call, *Refusal) {
	if n := int64(len(texts)); n > o.Feature.MaxInputs {
		return nil, &Refusal{Kind: TooManyTexts, Requested: n, Most: o.Feature.MaxInputs}
	}
	c := &Call{Offer: o, Candidates: o.Candidates, Inputs: texts}
	chars := int64(0)
	model := o.Candidates[0].counts
	for _, text := range texts {
		chars += int64(utf8.RuneCountInString(text))
		c.Input += model.Text(text)
	}
	switch {
	case o.tier.MaxInputChars > 0 && chars > o.tier.MaxInputChars:
		return nil, &Refusal{Kind: TextsTooLong, Requested: chars, Most: o.tier.MaxInputChars}
	case c.Input > o.tier.MaxInputTokens:
		return nil, &Refusal{Kind: TextsOfTooManyTokens, Requested: c.Input, Most: o.tier.MaxInputTokens}
	}
	c.Worst = c.Candidates.worstCase(c.Input, 0)
	return c, nil
}

// Embedded notes the report of an answer with vectors, if a model can have it, and whether
// all of them are here: then the caller gets what was asked for.
func (m *Meter) Embedded(usage *price.Usage, whole bool) {
	if m.believes(usage) {
		m.Usage = usage
	}
	m.Text, m.Finished = whole, whole
}
