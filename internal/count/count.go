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
	"strings"

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

// framing is what tools cost beyond what is written of them, in tokens. The figures are
// the most that real answers have shown, of which testdata has the sources.
type framing struct {
	tools   int // that there are any
	perTool int
	// A call is counted with its name twice, since its result may be said to come from there,
	// and a result with its text.
	perCall, perParallel, perResult int
	word, named                     int // a choice: none or required, or a name, which comes on top
}

var (
	// classic is for the models up to gpt-4.5. What they add to the namespace itself was 9
	// tokens, or 5 if the conversation begins with instructions. Several calls at a time
	// are written as a call of multi_tool_use.parallel.
	classic = framing{tools: 10, perTool: 0, perCall: 5, perParallel: 8, perResult: 4, word: 1, named: 5}
	// modern is for all later ones, and for those whose names say nothing: gpt-5 adds 98
	// tokens, among them those that say which tools take which channel.
	modern = framing{tools: 100, perTool: 2, perCall: 10, perParallel: 8, perResult: 6, word: 1, named: 5}
	// foreign is for templates that we do not see. Instructions of 865 tokens (Amazon Nova 2
	// Lite), 804 (Claude Opus 4.7), 675 (Llama 4 as Groq serves it) are the longest.
	foreign = framing{tools: 1024, perTool: 64, perCall: 48, perResult: 48, word: 16, named: 16}
)

// family gives how the model is shown tools, and whether it is in TypeScript.
func (m Model) family() (f *framing, typescript bool) {
	if !m.Tokenizer.Exact() || m.Kind != kind.OpenAI {
		return &foreign, false
	}
	id := m.ID[strings.LastIndexByte(m.ID, '/')+1:] // as routers have it: openai/gpt-4o
	for _, start := range []string{"gpt-3.5", "gpt-35", "gpt-4", "chatgpt-4o"} {
		if strings.HasPrefix(id, start) {
			return &classic, true
		}
	}
	return &modern, true
}

// Base gives the tokens that any request costs beyond its messages and tools, at most. The
// template of gpt-oss begins with a prompt of 63 tokens, which says who it is, its date and
// its channels.
func (m Model) Base() int64 {
	n := m.Tokenizer.PerReply()
	if m.Tokenizer.Exact() && strings.Contains(m.ID, "gpt-oss") {
		n += 80
	}
	return int64(n)
}

// Message gives the tokens that m costs with its framing, at most: its text, its calls of
// tools, and whose result it is. Its images come on top, each as Images.Of says.
func (m Model) Message(message openai.Message) int64 {
	t := m.Tokenizer
	n := t.PerMessage()
	message.Split(func(text string) { n += t.Count(text) }, func(openai.Image) { n += perImage })
	if len(message.ToolCalls) == 0 && message.ToolCallID == "" {
		return int64(n)
	}
	f, typescript := m.family()
	for _, c := range message.ToolCalls {
		n += f.perCall + 2*t.Count(c.Name) + t.Count(c.Arguments)
		if len(message.ToolCalls) > 1 {
			n += f.perParallel
		}
		if !typescript {
			n += t.Count(c.ID) + printed(c.Arguments, 1)
			members(c.Arguments, func(string, string) { n += perArgument })
		}
	}
	if message.ToolCallID != "" {
		n += f.perResult
		if !typescript {
			n += t.Count(message.ToolCallID)
		}
	}
	return int64(n)
}

// perArgument is for templates that print each argument of a call as an element of XML
// (Qwen3 Coder, GLM).
const perArgument = 48

// perImage is what begins and ends an image in a message: 1 token with OpenAI's models, 4
// with Claude.
const perImage = 4
