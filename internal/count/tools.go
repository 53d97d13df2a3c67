package count

import "github.com/tokenfuse/tokenfuse/internal/openai"

// Tools gives the tokens that offering tools costs, with what the choice among them adds,
// at most; 0 if there are none. It is Tools without a choice, plus Choice.
func (m Model) Tools(tools []openai.Tool, choice openai.ToolChoice) int64 {
	if len(tools) == 0 {
		return 0
	}
	f, inTypeScript := m.family()
	n := int64(f.tools + f.perTool*len(tools))
	if inTypeScript {
		w := typescript{tokenizer: m.Tokenizer, harmony: f == &modern}
		n += w.tools(tools)
	} else {
		for _, t := range tools {
			n += m.asJSON(t)
		}
	}
	return n + m.Choice(choice)
}

// Choice gives the tokens that a choice among tools adds to them, at most. OpenAI's models
// are told in 1 token that they may not call any, and in 4 and its name which they must.
func (m Model) Choice(choice openai.ToolChoice) int64 {
	f, _ := m.family()
	switch {
	case choice.Name != "":
		return int64(f.named + m.Tokenizer.Count(choice.Name))
	case choice.Mode == "" || choice.Mode == "auto":
		return 0
	}
	return int64(f.word)
}
