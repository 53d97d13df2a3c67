package count

import "github.com/tokenfuse/tokenfuse/internal/openai"

// Tools gives the tokens that offering tools costs, with what the choice among them adds,
// at most; 0 if there are none. It is Tools without a choice, plus Choice.
func (m Model) Tools(tools []openai.Tool, choice openai.ToolChoice) int64 {
	if len(tools) == 0 {
		return 0
	}
	t := m.Tokenizer
	n := 1024
	for _, tool := range tools {
		n += 64 + 2*(t.Count(tool.Name)+t.Count(tool.Description)+t.Count(string(tool.Parameters)))
	}
	return int64(n) + m.Choice(choice)
}

// Choice gives the tokens that a choice among tools adds to them, at most.
func (m Model) Choice(choice openai.ToolChoice) int64 {
	if choice == (openai.ToolChoice{}) {
		return 0
	}
	return int64(16 + 2*m.Tokenizer.Count(choice.Name))
}
