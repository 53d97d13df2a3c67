package provider

import (
	"errors"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// check refuses a request that no provider could answer.
func (r Request) check() error {
	if r.Model == "" || len(r.Messages) == 0 || r.MaxOutputTokens < 1 {
		return errors.New("request without model, messages or output cap")
	}
	return nil
}

// turn is what one side says before the other does: one text per message.
type turn struct {
	role  string // user or assistant
	texts []string
}

// conversation puts messages into the form that Anthropic and Bedrock want. The
// instructions, from system and developer messages, stand apart, wherever they
// were. The sides take turns. Messages without text, which both refuse, are left
// out: they say nothing. The user begins: before an assistant that does (a
// greeting, or what is left of a longer conversation) the user says opening, so
// that nothing is lost.
func conversation(messages []openai.Message) (instructions []string, turns []turn) {
	for _, m := range messages {
		if strings.TrimSpace(m.Content) == "" {
			continue
		}
		if m.IsInstruction() {
			instructions = append(instructions, m.Content)
			continue
		}
		if len(turns) == 0 && m.Role == "assistant" {
			turns = append(turns, turn{"user", []string{opening}})
		}
		if last := len(turns) - 1; last >= 0 && turns[last].role == m.Role {
			turns[last].texts = append(turns[last].texts, m.Content)
			continue
		}
		turns = append(turns, turn{m.Role, []string{m.Content}})
	}
	return instructions, turns
}

// opening is a token or two. The upper bound by which models of these providers
// are counted has room for it, since it takes 12 tokens for the framing of each
// message.
const opening = "..."

// turnsOf is the conversation of a request, if a provider that knows only
// conversations can be sent it. What is wrong with it is the caller's doing, not the
// provider's: it counts as refused, not as unreachable.
func turnsOf(req Request) (instructions []string, turns []turn, err error) {
	if err := req.check(); err != nil {
		return nil, nil, unsent(err)
	}
	instructions, turns = conversation(req.Messages)
	switch {
	case req.ResponseFormat != nil:
		return nil, nil, impossible("there are no response formats")
	case len(turns) == 0:
		return nil, nil, impossible("no message has text")
	}
	return instructions, turns, nil
}
