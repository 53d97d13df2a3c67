package chatapi

import (
	"fmt"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// notYet refuses what no admission counts: tools, images, and a wish for reasoning.
func notYet(r *openai.ChatRequest) *openai.Error {
	switch {
	case len(r.Tools) > 0:
		return openai.NoTools("tools")
	case r.ToolChoice.Name != "" || r.ToolChoice.Mode == "required":
		return openai.NoTools("tool_choice")
	case r.ReasoningEffort != "":
		return openai.Errorf(openai.UnsupportedParameter, "reasoning_effort", "reasoning_effort is not supported here.")
	}
	for i, m := range r.Messages {
		switch {
		case m.Role == "tool":
			return openai.NoTools(fmt.Sprintf("messages[%d].role", i))
		case len(m.ToolCalls) > 0:
			return openai.NoTools(fmt.Sprintf("messages[%d].tool_calls", i))
		case len(m.Images) > 0:
			path := fmt.Sprintf("messages[%d].content[%d].type", i, m.Images[0].Part)
			return openai.Errorf(openai.UnsupportedParameter, path, "%s is supported only as text.", path)
		}
	}
	return nil
}
