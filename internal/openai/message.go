package openai

import (
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/strictjson"
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
	type text struct {
		Role       string    `json:"role"`
		Content    string    `json:"content"`
		ToolCalls  ToolCalls `json:"tool_calls,omitempty"`
		ToolCallID string    `json:"tool_call_id,omitempty"`
	}
	type other struct {
		Role      string    `json:"role"`
		Content   []any     `json:"content"`
		ToolCalls ToolCalls `json:"tool_calls,omitempty"`
	}
	if len(m.Images) > 0 || len(m.ToolCalls) > 0 && m.Content == "" {
		return plain(other{m.Role, m.parts(), m.ToolCalls})
	}
	return plain(text{m.Role, m.Content, m.ToolCalls, m.ToolCallID})
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
	raws, err := strictjson.List(f.raw)
	if err != nil {
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
	return f.paired(r.Messages)
}

// dropped are members of messages that clients send back as they got them, or add for
// themselves, and that say nothing to a model.
var dropped = []string{"annotations", "cache_control", "name", "parsed", "reasoning_content"}

var messageNames = append([]string{"role", "content", "refusal", "audio", "tool_calls", "function_call", "tool_call_id"}, dropped...)

// readMessage takes a message as we or others have answered it, too. The text of a refusal
// is what the assistant said, so it becomes the content, and counts.
func readMessage(f field) (m Message, err *Error) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return m, err
	}
	var content, calls, id field
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
		case "tool_calls":
			calls = part
		case "tool_call_id":
			id = part
		case "function_call":
			if !part.isNothing() {
				err = part.older()
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
	if m.Role == "" {
		return m, f.missing("role")
	}
	if err := m.readTooling(f, calls, id); err != nil {
		return m, err
	}
	said := refusal != "" || m.Role == "assistant" // may have said nothing, and did so in many ways
	switch {
	case content.raw != nil:
		err = m.readContent(content, said)
	case !said:
		err = f.missing("content")
	}
	m.Content += refusal
	return m, err
}

// readTooling takes an assistant's calls, and which of them a tool's message answers.
func (m *Message) readTooling(f, calls, id field) (err *Error) {
	switch {
	case calls.raw == nil || calls.isNothing():
	case m.Role != "assistant":
		return calls.invalid("belongs to messages of the role assistant alone")
	default:
		if m.ToolCalls, err = readToolCalls(calls); err != nil {
			return err
		}
	}
	switch {
	case m.Role == "tool" && id.raw == nil:
		return f.missing("tool_call_id")
	case m.Role == "tool":
		m.ToolCallID, err = readCallID(id)
	case id.raw != nil && !id.isNothing():
		return id.invalid("belongs to messages of the role tool alone")
	}
	return err
}

func readRole(f field) (string, *Error) {
	role, err := f.text(32)
	switch role {
	case "system", "developer", "user", "assistant", "tool":
	case "function":
		return "", f.older()
	default:
		if err == nil {
			err = f.invalid("must be system, developer, user, assistant or tool")
		}
	}
	return role, err
}

// readContent takes a string, or an array of parts, whose text is joined. There may be no
// part if empty is true.
func (m *Message) readContent(f field, empty bool) *Error {
	if s, ok := strictjson.String(f.raw); ok {
		m.Content = s
		return nil
	}
	parts, err := strictjson.List(f.raw)
	if err != nil {
		return f.invalid("must be a string or a list of parts")
	}
	if len(parts) == 0 && !empty {
		return f.invalid("is empty")
	}
	var content strings.Builder
	for i, raw := range parts {
		text, image, err := m.readPart(field{f.index(i), raw})
		if err != nil {
			return err
		}
		if image != nil {
			image.Part, image.At = i, content.Len()
			m.Images = append(m.Images, *image)
		}
		content.WriteString(text)
	}
	m.Content = content.String()
	return nil
}

var partNames = []string{"type", "text", "refusal", "image_url", "cache_control", "annotations"}

// readPart takes a part of text, of a refusal or of an image, which stands under the name of
// its type.
func (m *Message) readPart(f field) (text string, image *Image, err *Error) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return "", nil, err
	}
	kind, err := m.partKind(f, members)
	if err != nil {
		return "", nil, err
	}
	found := false
	for _, member := range members {
		part := field{join(f.path, member.Name), member.Value}
		switch {
		case member.Name == kind && kind == "image_url":
			image, err = readImage(part)
		case member.Name == kind:
			err = part.string(&text)
		case member.Name == "image_url":
			err = part.invalid("belongs to parts of the type image_url alone")
		case !slices.Contains(partNames, member.Name):
			err = unknownField(part.path, member.Name, partNames)
		}
		if err != nil {
			return "", nil, err
		}
		found = found || member.Name == kind
	}
	if !found {
		err = f.missing(kind)
	}
	return text, image, err
}

// partKind is the type of a part that m may have.
func (m *Message) partKind(f field, members Members) (string, *Error) {
	kind, err := members.text(f.path, "type", 64)
	switch {
	case err != nil:
		return "", err
	case members.Get("type") == nil:
		return "", f.missing("type")
	case kind == "text", kind == "refusal", kind == "image_url" && m.Role == "user":
		return kind, nil
	}
	may := "text is"
	if m.Role == "user" {
		may = "text and image_url are"
	}
	f.path = join(f.path, "type")
	return "", f.unsupported("%q is not supported: of the role %s only %s", Clip(kind), m.Role, may)
}
