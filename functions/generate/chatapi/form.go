package chatapi

import (
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// form is how an answer is written in the API in which it was asked for. An exchange calls
// either whole, after the settle, or open, part for each part that shows something, and,
// after the settle, end. Of the exchange a form reads what the answer is of, and writes to
// its outlet.
type form interface {
	// whole is an answer in one piece.
	whole(x *exchange, all *reply) any
	// open begins a stream, part adds to it: false means that the caller has left or does
	// not read.
	open(x *exchange) bool
	part(x *exchange, p provider.Part) bool
	end(x *exchange)
	// failure is what a stream that has begun ends with where the call has failed. The
	// stream may not have been opened: comments may have gone out before.
	failure(err *openai.Error) []byte
}

// reply collects the parts of an answer.
type reply struct {
	content, refusal, reasoning strings.Builder
	calls                       []*call
}

// call is a call of a tool as far as it has come.
type call struct {
	openai.ToolCall // but its Arguments
	arguments       strings.Builder
}

func (r *reply) add(p provider.Part) {
	r.content.WriteString(p.Content)
	r.refusal.WriteString(p.Refusal)
	r.reasoning.WriteString(p.Reasoning)
	for _, piece := range p.ToolCalls {
		at := slices.IndexFunc(r.calls, func(c *call) bool { return c.Index == piece.Index })
		if at < 0 {
			at = len(r.calls)
			r.calls = append(r.calls, &call{ToolCall: piece})
		}
		r.calls[at].arguments.WriteString(piece.Arguments)
	}
}

// toolCalls are the calls, whole, by their index; nil: there are none.
func (r *reply) toolCalls() (list openai.ToolCalls) {
	for _, c := range r.calls {
		whole := c.ToolCall
		whole.Arguments = c.arguments.String()
		list = append(list, whole)
	}
	slices.SortStableFunc(list, func(a, b openai.ToolCall) int { return a.Index - b.Index })
	return list
}

// deltaOf is a part as a chunk of a chat completion carries it.
func deltaOf(p provider.Part) *openai.Delta {
	d := &openai.Delta{Reasoning: p.Reasoning}
	if p.Content != "" {
		d.Content = &p.Content
	}
	if p.Refusal != "" {
		d.Refusal = &p.Refusal
	}
	for _, piece := range p.ToolCalls {
		d.ToolCalls = append(d.ToolCalls, openai.ToolCallDelta(piece))
	}
	return d
}
