package handler

import (
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// capMargin is how far beyond its output cap, in tokens, an answer may go before it
// is taken for one whose cap was ignored: a model's own tokens may be cut a little
// otherwise than ours count them, and no honest answer may lose its end.
func capMargin(maxOutput int64) int64 { return maxOutput/8 + 16 }

// see adds the text of a part to what was seen. Where that shows that the provider
// ignores the output cap, the answer ends: nothing more of it is read, so that the
// connection is closed, and the part keeps what is within the cap.
//
// Only what is certainly too much counts: of a tokenizer that is not known, a token
// is taken for as many bytes as any may have.
func (x *exchange) see(p *provider.Part) {
	if p.Content == "" && p.Refusal == "" {
		return
	}
	if x.seen == nil {
		x.seen = x.asked.tokenizer.Running()
	}
	before := x.seen.Len()
	x.seen.Add(p.Content)
	x.seen.Add(p.Refusal)
	x.tally.text = true
	if !x.seen.Exceeds(int(x.call.maxOutput + capMargin(x.call.maxOutput))) {
		return
	}
	x.kept = max(before, len(x.asked.tokenizer.CutAtLeast(x.seen.Text(), int(x.call.maxOutput))))
	content := min(len(p.Content), x.kept-before)
	p.Content, p.Refusal = p.Content[:content], p.Refusal[:x.kept-before-content]
	x.tally.overran, x.tally.finished, x.finish = true, true, "length"
	x.entry.overran = x.asked.model.Name
	logger(x.ctx).Error("the provider ignores the output cap: the answer is ended and its worst case charged",
		"feature", x.call.offer.feature.Name, "model", x.asked.model.Name, "max_output_tokens", x.call.maxOutput, "seen_tokens_at_least", x.seen.AtLeast())
}

// count counts what was seen of the answer, when it has ended.
func (x *exchange) count() {
	if x.seen == nil {
		return
	}
	made := int64(x.seen.AtLeast())
	x.tally.made, x.tally.output = made, made
	switch {
	case x.tally.overran:
		x.tally.output = int64(x.asked.tokenizer.AtLeast(x.seen.Text()[:x.kept]))
	case !x.asked.tokenizer.Exact() && x.tally.usage == nil:
		// An upper bound, but the provider has kept to the cap.
		x.tally.output = max(made, min(int64(x.seen.Count()), x.call.maxOutput))
	}
}
