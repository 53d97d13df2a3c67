package openai

import (
	"encoding/json"
	"strings"
)

// Message is one turn of the conversation, as text.
type Message struct {
	Role    string `json:"role"` // system, developer, user or assistant
	Content string `json:"content"`
}

// IsInstruction reports whether m tells the model how to behave, and is no side of the
// conversation.
func (m Message) IsInstruction() bool { return m.Role == "system" || m.Role == "developer" }

func readMessages(r *ChatRequest, f field) *Error {
	var raws []json.RawMessage
	if json.Unmarshal(f.raw, &raws) != nil {
		return f.invalid("must be a list of messages")
	}
	if len(raws) == 0 {
		return f.invalid("is empty")
	}
	r.Messages = make([]Message, len(raws))
	for i, raw := range raws {
		m, err := readMessage(field{f.index(i), raw})
		if err != nil {
			return err
		}
		r.Messages[i] = m
	}
	return nil
}

// echoed are fields of messages that clients send back as they got them; they are
// accepted while they say nothing.
var echoed = []string{"refusal", "annotations", "audio", "tool_calls", "function_call"}

var messageNames = append([]string{"role", "content"}, echoed...)

func readMessage(f field) (m Message, err *Error) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return m, err
	}
	hasContent := false
	for _, member := range members {
		part := field{join(f.path, member.Name), member.Value}
		switch member.Name {
		case "role":
			if m.Role, err = part.text(32); err != nil {
				return m, err
			}
			switch m.Role {
			case "system", "developer", "user", "assistant":
			default:
				return m, part.invalid("must be system, developer, user or assistant")
			}
		case "content":
			hasContent = !isNull(member.Value)
			if hasContent {
				if m.Content, err = readContent(part); err != nil {
					return m, err
				}
			}
		case "refusal", "annotations", "audio", "tool_calls", "function_call":
			if !part.isOneOf(`null`, `""`, `[]`, `{}`) {
				return m, part.unsupported("is not supported here")
			}
		default:
			return m, unknownField(part.path, member.Name, messageNames)
		}
	}
	if m.Role == "" {
		return m, Errorf(InvalidValue, join(f.path, "role"), "%s is missing.", join(f.path, "role"))
	}
	if !hasContent {
		return m, Errorf(InvalidValue, join(f.path, "content"), "%s is missing.", join(f.path, "content"))
	}
	return m, nil
}

// readContent takes a string, or an array of text parts, which are joined.
func readContent(f field) (string, *Error) {
	var s string
	if json.Unmarshal(f.raw, &s) == nil {
		return s, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(f.raw, &parts) != nil {
		return "", f.invalid("must be a string or a list of text parts")
	}
	if len(parts) == 0 {
		return "", f.invalid("is empty")
	}
	var text strings.Builder
	for i, raw := range parts {
		s, err := readPart(field{f.index(i), raw})
		if err != nil {
			return "", err
		}
		text.WriteString(s)
	}
	return text.String(), nil
}

func readPart(f field) (string, *Error) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return "", err
	}
	var kind, text string
	hasText := false
	for _, m := range members {
		member := field{join(f.path, m.Name), m.Value}
		switch m.Name {
		case "type":
			if kind, err = member.text(64); err != nil {
				return "", err
			}
			if kind != "text" {
				return "", member.unsupported("%q is not supported: only text is", Clip(kind))
			}
		case "text":
			if json.Unmarshal(m.Value, &text) != nil || isNull(m.Value) {
				return "", member.invalid("must be a string")
			}
			hasText = true
		default:
			return "", unknownField(member.path, m.Name, []string{"type", "text"})
		}
	}
	if kind == "" {
		return "", Errorf(InvalidValue, join(f.path, "type"), "%s is missing.", join(f.path, "type"))
	}
	if !hasText {
		return "", Errorf(InvalidValue, join(f.path, "text"), "%s is missing.", join(f.path, "text"))
	}
	return text, nil
}
