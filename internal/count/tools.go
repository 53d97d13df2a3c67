package count

import (
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// Tools gives the tokens that offering tools costs, with what the choice among them adds,
// at most; 0 if there are none. It is Tools without a choice, plus Choice.
func Tools(t *tokens.Tokenizer, k kind.Kind, tools []openai.Tool, choice openai.ToolChoice) int64 {
	if len(tools) == 0 {
		return 0
	}
	n := 1024
	for _, tool := range tools {
		n += 64 + 2*(t.Count(tool.Name)+t.Count(tool.Description)+t.Count(string(tool.Parameters)))
	}
	return int64(n) + Choice(t, k, choice)
}

// Choice gives the tokens that a choice among tools adds to them, at most.
func Choice(t *tokens.Tokenizer, k kind.Kind, choice openai.ToolChoice) int64 {
	if choice == (openai.ToolChoice{}) {
		return 0
	}
	return int64(16 + 2*t.Count(choice.Name))
}
