// Package count says what the parts of a request that are more than plain text cost of a
// model's input: tools, calls of tools and their results, images.
//
// Guarantees: the count is from above. It is never below what a provider reports for the
// same request, as far as a rule or real answers have been published (see testdata); where
// neither has been, it is the most that any plausible rendering comes to. With an exact
// tokenizer the count of tools is close as well. A report above the count is charged as
// what it says.
//
// Everything here is pure and safe for concurrent use.
package count

import (
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// Model is what must be known of a model to count for it.
type Model struct {
	Tokenizer *tokens.Tokenizer
	Kind      kind.Kind // of its provider
	ID        string    // the provider's own
}

// Message gives the tokens that m costs with its framing, at most: its text, its calls of
// tools, and whose result it is. Its images come on top, each as Images.Of says.
func (m Model) Message(message openai.Message) int64 {
	t := m.Tokenizer
	n := t.PerMessage()
	message.Split(func(text string) { n += t.Count(text) }, func(openai.Image) { n += perPart })
	for _, c := range message.ToolCalls {
		n += perCall + 2*(t.Count(c.ID)+t.Count(c.Name)) + 2*t.Count(c.Arguments)
	}
	if message.ToolCallID != "" {
		n += perCall + t.Count(message.ToolCallID)
	}
	return int64(n)
}

const (
	perPart = 4  // that begin and end a part of a message, beside the part itself
	perCall = 64 // around a call of a tool, or its result
)
