package admission

import (
	"context"
	"log/slog"
	"maps"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// Meter keeps the tally of an answer as it comes, and ends it at its output cap.
type Meter struct {
	Tally
	FinishReason string // "" until it has arrived
	Thought      bool   // the model has reasoned: it said so, or its usage does

	ctx       context.Context // the request's, for the log alone
	admission *Admission
	tokenizer *tokens.Tokenizer
	seen      *tokens.Running // the text of the answer so far, shown or not, calls of tools included
	kept      int             // bytes of it that are shown, where the output cap was ignored
	arguments map[int]written // of the calls, by their index
	thoughts  *tokens.Running // what the model has reasoned so far
}

// Meter begins the tally of a candidate's answer.
func (a *Admission) Meter(ctx context.Context, candidate Candidate) Meter {
	return Meter{Tally: Tally{Model: candidate.Model, Input: a.Call.Input}, ctx: ctx, admission: a, tokenizer: candidate.Tokenizer}
}

func (m *Meter) log() *slog.Logger {
	return m.admission.c.Log(m.ctx).With("feature", m.admission.Call.Offer.Feature.Name, "model", m.Model.Name)
}

// Take adds a part of the answer to what is known, and leaves of it what is shown. After
// Overran nothing more of the answer should be read.
func (m *Meter) Take(p *provider.Part) {
	if p.FinishReason != "" {
		m.FinishReason, m.Finished = p.FinishReason, true
	}
	if p.UnknownReason != "" {
		m.log().Warn("the provider ended its answer for a reason that nobody knows: it is taken for stop", "finish_reason", p.UnknownReason)
	}
	if m.believes(p.Usage) {
		m.Usage = p.Usage
	}
	if m.believes(p.AtLeast) {
		m.Least = p.AtLeast
	}
	m.Thought = m.Thought || p.Reasoning != "" || m.Usage != nil && m.Usage.Reasoning > 0
	if p.Reasoning != "" {
		if m.thoughts == nil {
			m.thoughts = m.tokenizer.Running()
		}
		if m.thoughts.Len() < mostThoughts {
			m.thoughts.Add(p.Reasoning)
		}
	}
	m.see(p)
}

// believes reports whether u is there and the model can have it.
func (m *Meter) believes(u *price.Usage) bool {
	if u == nil {
		return false
	}
	texts := max(1, int64(len(m.admission.Call.Inputs))) // each has a context of its own
	if u.Total() > texts*m.Model.Context {
		m.log().Error("the provider reported more usage than the model's context holds: the report is not believed",
			"reported_tokens", u.Total(), "context", m.Model.Context, "texts", texts)
		return false
	}
	return true
}

// mostThoughts are as many bytes of reasoning as are counted, some 200,000 tokens: to
// count an endless stream of it would take the time of the settle.
const mostThoughts = 1 << 20

// capMargin is how far beyond its output cap, in tokens, an answer may go before it
// is taken for one whose cap was ignored: a model's own tokens may be cut a little
// otherwise than ours count them, and no honest answer may lose its end.
func capMargin(maxOutput int64) int64 { return maxOutput/8 + 16 }

// see adds what a part says to what was seen: text, and calls of tools. Where that shows
// that the provider ignores the output cap, the answer ends, and the part keeps what is
// within the cap.
//
// Only what is certainly too much counts: of a tokenizer that is not known, a token
// is taken for as many bytes as any may have, and of a tool's arguments only what a model
// has had to write.
func (m *Meter) see(p *provider.Part) {
	if p.Content == "" && p.Refusal == "" && len(p.ToolCalls) == 0 {
		return
	}
	most := m.admission.Call.MaxOutput
	if m.seen == nil {
		m.seen, m.arguments = m.tokenizer.Running(), map[int]written{}
	}
	before, arguments := m.seen.Len(), maps.Clone(m.arguments)
	m.seen.Add(p.Content)
	m.seen.Add(p.Refusal)
	m.Text = m.Text || strings.TrimSpace(p.Content) != "" || strings.TrimSpace(p.Refusal) != ""
	for _, c := range p.ToolCalls {
		w := m.arguments[c.Index]
		m.seen.Add(m.wrote(c.Name))
		m.seen.Add(w.add(c.Arguments))
		m.arguments[c.Index] = w
		m.Text = m.Text || c.Name != "" || c.Arguments != "" // something to act on is something to show
	}
	if !m.seen.Exceeds(int(most + capMargin(most))) {
		return
	}
	m.kept = max(before, len(m.tokenizer.CutAtLeast(m.seen.Text(), int(most))))
	m.keep(p, m.kept-before, arguments)
	m.Overran, m.Finished, m.FinishReason = true, true, "length"
	m.log().Error("the provider ignores the output cap: the answer is ended and its worst case charged",
		"max_output_tokens", most, "seen_tokens_at_least", m.seen.AtLeast())
}

// keep leaves of a part the beginning that comes to n bytes of what was seen: a call loses
// the end of its arguments, or is left out with all that follow if it loses of its name.
func (m *Meter) keep(p *provider.Part, n int, arguments map[int]written) {
	for _, text := range []*string{&p.Content, &p.Refusal} {
		*text = (*text)[:min(len(*text), n)]
		n -= len(*text)
	}
	for i := range p.ToolCalls {
		c := &p.ToolCalls[i]
		if n -= len(m.wrote(c.Name)); n <= 0 {
			p.ToolCalls = p.ToolCalls[:i]
			return
		}
		w := arguments[c.Index]
		c.Arguments = w.fits(c.Arguments, n)
		added := w.add(c.Arguments)
		n, arguments[c.Index] = n-len(added), w
	}
}

// wrote is what the model wrote of the name of a function: nothing where the request has
// said which one to call. OpenAI bills the arguments alone then, and so is nobody charged
// for more.
func (m *Meter) wrote(name string) string {
	if m.admission.Call.ToolChoice.Name != "" {
		return ""
	}
	return name
}

// Count counts what was seen of the answer, when it has ended. Reasoning was made, too,
// but is not what the caller is held to: it may never have been shown, and some servers
// leave it out of the output cap.
func (m *Meter) Count() {
	if m.thoughts != nil {
		m.Made = int64(m.thoughts.AtLeast())
	}
	if m.seen == nil {
		return
	}
	made := int64(m.seen.AtLeast())
	m.Made, m.Output = m.Made+made, made
	switch {
	case m.Overran:
		m.Output = int64(m.tokenizer.AtLeast(m.seen.Text()[:m.kept]))
	case !m.tokenizer.Exact() && m.Usage == nil:
		// An upper bound, but the provider has kept to the cap.
		m.Output = max(made, min(int64(m.seen.Count()), m.admission.Call.MaxOutput))
	}
}
