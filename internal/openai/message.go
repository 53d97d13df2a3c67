package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Message is one turn of the conversation.
type Message struct {
	Role       string    // system, developer, user, assistant or tool
	Content    string    // all of its text
	Images     []Image   // of a user, in the order in which they stand in Content
	ToolCalls  ToolCalls // of an assistant
	ToolCallID string    // of a tool: which call Content is the result of
}

// MarshalJSON writes m as OpenAI's API has it: the content as text, or as parts where there
// are images among it, or as null where there are only calls of tools.
func (m Message) MarshalJSON() ([]byte, error) {
	wire := struct {
		Role       string    `json:"role"`
		Content    any       `json:"content"`
		ToolCalls  ToolCalls `json:"tool_calls,omitempty"`
		ToolCallID string    `json:"tool_call_id,omitempty"`
	}{Role: m.Role, Content: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID}
	switch {
	case len(m.Images) > 0:
		wire.Content = m.parts()
	case len(m.ToolCalls) > 0 && m.Content == "":
		wire.Content = nil
	}
	return plain(wire)
}

// Split gives the content in its order: each text that is not empty to text, each image to
// image.
func (m Message) Split(text func(string), image func(Image)) {
	said := 0
	for _, i := range m.Images {
		if at := min(i.At, len(m.Content)); at > said {
			text(m.Content[said:at])
			said = at
		}
		image(i)
	}
	if said < len(m.Content) {
		text(m.Content[said:])
	}
}

func (m Message) parts() (list []any) {
	type imageURL struct {
		URL    string `json:"url"`
		Detail string `json:"detail,omitempty"`
	}
	m.Split(func(text string) {
		list = append(list, struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{"text", text})
	}, func(i Image) {
		list = append(list, struct {
			Type string   `json:"type"`
			URL  imageURL `json:"image_url"`
		}{"image_url", imageURL{i.URL, i.Detail}})
	})
	return list
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

// dropped are members of messages that clients send back as they got them, or add for
// themselves, and that say nothing to a model of text.
var dropped = []string{"annotations", "cache_control", "name", "parsed", "reasoning_content"}

var messageNames = append([]string{"role", "content", "refusal", "audio", "tool_calls", "function_call", "tool_call_id"}, dropped...)

// readMessage takes a message as we or others have answered it, too. The text of a refusal
// is what the assistant said, so it becomes the content, and counts.
func readMessage(f field) (m Message, err *Error) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return m, err
	}
	var content field
	var refusal string
	for _, member := range members {
		part := field{join(f.path, member.Name), member.Value}
		switch member.Name {
		case "role":
			m.Role, err = readRole(part)
		case "content":
			content = part
		case "refusal":
			if !part.isNothing() {
				err = part.string(&refusal)
			}
		case "tool_calls", "function_call", "tool_call_id":
			if !part.isNothing() {
				err = part.noTools()
			}
		case "audio":
			if !part.isNothing() {
				err = part.unsupported("is not supported here")
			}
		default:
			if !slices.Contains(dropped, member.Name) {
				err = unknownField(part.path, member.Name, messageNames)
			}
		}
		if err != nil {
			return m, err
		}
	}
	said := refusal != "" || m.Role == "assistant" // may have said nothing, and did so in many ways
	switch {
	case m.Role == "":
		return m, Errorf(InvalidValue, join(f.path, "role"), "%s is missing.", join(f.path, "role"))
	case content.raw != nil:
		m.Content, err = readContent(content, said)
	case !said:
		err = Errorf(InvalidValue, join(f.path, "content"), "%s is missing.", join(f.path, "content"))
	}
	m.Content += refusal
	return m, err
}

func readRole(f field) (string, *Error) {
	role, err := f.text(32)
	switch role {
	case "system", "developer", "user", "assistant":
	case "tool", "function":
		return "", f.noTools()
	default:
		if err == nil {
			err = f.invalid("must be system, developer, user or assistant")
		}
	}
	return role, err
}

// readContent takes a string, or an array of text parts, which are joined. There may be no
// part if empty is true.
func readContent(f field, empty bool) (string, *Error) {
	var s string
	if json.Unmarshal(f.raw, &s) == nil {
		return s, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(f.raw, &parts) != nil {
		return "", f.invalid("must be a string or a list of text parts")
	}
	if len(parts) == 0 && !empty {
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

// readPart takes a part of text or of a refusal, whose text stands under the name of its
// type.
func readPart(f field) (string, *Error) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return "", err
	}
	var kind string
	var text, refusal *string
	for _, m := range members {
		member := field{join(f.path, m.Name), m.Value}
		switch m.Name {
		case "type":
			if kind, err = member.text(64); err == nil && kind != "text" && kind != "refusal" {
				err = member.unsupported("%q is not supported: only text is", Clip(kind))
			}
		case "text":
			text = new(string)
			err = member.string(text)
		case "refusal":
			refusal = new(string)
			err = member.string(refusal)
		case "cache_control", "annotations":
		default:
			err = unknownField(member.path, m.Name, []string{"type", "text", "refusal", "cache_control", "annotations"})
		}
		if err != nil {
			return "", err
		}
	}
	if kind == "refusal" {
		text = refusal
	}
	missing := cmp.Or(kind, "type")
	if kind == "" || text == nil {
		return "", Errorf(InvalidValue, join(f.path, missing), "%s is missing.", join(f.path, missing))
	}
	return *text, nil
}
