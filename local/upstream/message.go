package upstream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// maxCallID is the longest id of a tool call, in characters.
const maxCallID = 40

// requestMessage is one message of a chat.
type requestMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID *string         `json:"tool_call_id"`

	text     string // of the content
	pictures []picture
	calls    []requestCall
	answered string // of a tool's message: the name of the function that was called
}

// requestCall is a call that an assistant's message made.
type requestCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// part is a part of a content.
type part struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text"`
	ImageURL *imageURL `json:"image_url"`
}

// check reads what the message holds. at is where it stands.
func (m *requestMessage) check(at string) *problem {
	if !slices.Contains([]string{"system", "developer", "user", "assistant", "tool"}, m.Role) {
		return invalid(at+".role", "invalid_value",
			"Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'tool', and 'developer'.", m.Role)
	}
	if (m.Role == "tool") != (m.ToolCallID != nil) {
		if m.Role == "tool" {
			return missing(at + ".tool_call_id")
		}
		return unknown(at + ".tool_call_id")
	}
	if m.ToolCallID != nil {
		if p := shorterThan(at+".tool_call_id", *m.ToolCallID, maxCallID); p != nil {
			return p
		}
	}
	if m.ToolCalls != nil {
		if m.Role != "assistant" {
			return unknown(at + ".tool_calls")
		}
		if p := m.readCalls(at + ".tool_calls"); p != nil {
			return p
		}
	}
	return m.readContent(at + ".content")
}

func (m *requestMessage) readCalls(at string) *problem {
	if isNull(m.ToolCalls) {
		return invalid(at, "invalid_type", "Invalid type for '%s': expected an array of objects, but got null instead.", at)
	}
	if p := decode(m.ToolCalls, &m.calls, at); p != nil {
		return p
	}
	if len(m.calls) == 0 {
		return tooFew(at)
	}
	for i, c := range m.calls {
		at := fmt.Sprintf("%s[%d]", at, i)
		if c.ID == "" {
			return missing(at + ".id")
		}
		if p := shorterThan(at+".id", c.ID, maxCallID); p != nil {
			return p
		}
		if c.Type != "function" {
			return invalid(at+".type", "invalid_value", "Invalid value: '%s'. Supported values are: 'function'.", c.Type)
		}
		if p := checkName(at+".function.name", c.Function.Name); p != nil {
			return p
		}
	}
	return nil
}

func (m *requestMessage) readContent(at string) *problem {
	switch {
	case m.Content == nil || isNull(m.Content):
		if len(m.calls) > 0 {
			return nil
		}
		if m.Content == nil {
			return missing(at)
		}
		return misplaced(at, "Invalid value for 'content': expected a string, got null.")
	case m.Content[0] == '"':
		return decode(m.Content, &m.text, at)
	case m.Content[0] != '[':
		return invalid(at, "invalid_type", "Invalid type for '%s': expected one of a string or array of objects.", at)
	}
	var parts []json.RawMessage
	if p := decode(m.Content, &parts, at); p != nil {
		return p
	}
	if len(parts) == 0 {
		return tooFew(at)
	}
	for i, raw := range parts {
		if p := m.readPart(raw, fmt.Sprintf("%s[%d]", at, i)); p != nil {
			return p
		}
	}
	return nil
}

func (m *requestMessage) readPart(raw json.RawMessage, at string) *problem {
	var kind struct{ Type string }
	_ = json.Unmarshal(raw, &kind) // what is wrong with it is found below
	switch kind.Type {
	case "", "text", "image_url":
	default:
		return invalid(at+".type", "invalid_value", "Invalid value: '%s'. Supported values are: 'text' and 'image_url'.", kind.Type)
	}
	var part part
	if p := decode(raw, &part, at); p != nil {
		return p
	}
	switch {
	case part.Type == "":
		return missing(at + ".type")
	case part.Type == "text" && part.ImageURL != nil:
		return unknown(at + ".image_url")
	case part.Type == "text" && part.Text == nil:
		return missing(at + ".text")
	case part.Type == "text":
		m.text += *part.Text
		return nil
	case m.Role != "user":
		message, _, _ := strings.Cut(at, ".")
		return invalid(message, "invalid_value", "Invalid '%s'. Image URLs are only allowed for messages with role 'user', "+
			"but this message with role '%s' contains an image URL.", message, m.Role)
	case part.Text != nil:
		return unknown(at + ".text")
	case part.ImageURL == nil:
		return missing(at + ".image_url")
	}
	picture, p := readImage(part.ImageURL, at+".image_url")
	m.pictures = append(m.pictures, picture)
	return p
}

// checkOrder sees to it that the calls of a message are answered before anything else
// is said, and that only calls are answered.
func checkOrder(messages []requestMessage) *problem {
	names := map[string]string{} // of the functions that the last message with calls called, by their ids
	var open []string            // the ids that have no answer yet
	unanswered := func(i int) *problem {
		return misplaced(fmt.Sprintf("messages.[%d].role", i),
			"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "+
				"The following tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
	}
	for i := range messages {
		m := &messages[i]
		if m.Role == "tool" {
			if len(names) == 0 {
				return misplaced(fmt.Sprintf("messages.[%d].role", i),
					"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.")
			}
			name, ok := names[*m.ToolCallID]
			if !ok {
				return misplaced(fmt.Sprintf("messages.[%d].tool_call_id", i),
					"Invalid parameter: 'tool_call_id' of '%s' not found in 'tool_calls' of previous message.", *m.ToolCallID)
			}
			m.answered = name
			open = slices.DeleteFunc(open, func(id string) bool { return id == *m.ToolCallID })
			continue
		}
		if len(open) > 0 {
			return unanswered(i)
		}
		names = map[string]string{}
		for _, c := range m.calls {
			names[c.ID] = c.Function.Name
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return unanswered(len(messages) - 1)
	}
	return nil
}

// pictures are those of all messages.
func (r *request) pictures() (all []picture) {
	for _, m := range r.Messages {
		all = append(all, m.pictures...)
	}
	return all
}

// results are the texts of the tools' messages at the end of the chat, if there are any.
func (r *request) results() (texts []string) {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role != "tool" {
			break
		}
		texts = append(texts, m.text)
	}
	slices.Reverse(texts)
	return texts
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }
