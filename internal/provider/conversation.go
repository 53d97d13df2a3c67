package provider

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
)

// check refuses a request that no provider could answer.
func (r Request) check() error {
	if r.Model == "" || len(r.Messages) == 0 || r.MaxOutputTokens < 1 {
		return errors.New("request without model, messages or output cap")
	}
	return nil
}

// tooling is what r says of tools: nothing where there are none, since a choice among none
// is refused.
func (r Request) tooling() openai.Tooling {
	if len(r.Tools) == 0 {
		return openai.Tooling{}
	}
	return r.Tooling
}

// turn is what one side says before the other does.
type turn struct {
	role   string // user or assistant
	blocks []block
}

// block is one of: a text with something in it, an image, a call of a tool, or what came of
// one. Its ids are such as both providers take.
type block struct {
	text   string
	image  *openai.Image
	call   *openai.ToolCall
	result *result
}

// result is what came of a call.
type result struct {
	id, text string
}

// conversation puts messages into the form that Anthropic and Bedrock want. The
// instructions, from system and developer messages, stand apart, wherever they
// were. The sides take turns; what came of calls is the user's to say, before all else.
// Blank texts, which both refuse, are left out: they say nothing. The user begins: before
// an assistant that does (a greeting, or what is left of a longer conversation) the user
// says opening, so that nothing is lost.
//
// Without tools both refuse calls and results too. Then they are told as text.
func conversation(messages []openai.Message, tools bool) (instructions []string, turns []turn) {
	for _, m := range messages {
		if m.IsInstruction() {
			if !isBlank(m.Content) {
				instructions = append(instructions, m.Content)
			}
			continue
		}
		role := m.Role
		if role == "tool" {
			role = "user"
		}
		blocks := blocksOf(m, tools)
		if len(blocks) == 0 {
			continue
		}
		if len(turns) == 0 && role == "assistant" {
			turns = append(turns, turn{"user", []block{{text: opening}}})
		}
		if last := len(turns) - 1; last >= 0 && turns[last].role == role {
			turns[last].blocks = append(turns[last].blocks, blocks...)
			continue
		}
		turns = append(turns, turn{role, blocks})
	}
	for _, t := range turns {
		slices.SortStableFunc(t.blocks, func(a, b block) int { return rank(a) - rank(b) })
	}
	return instructions, turns
}

func rank(b block) int {
	if b.result != nil {
		return 0
	}
	return 1
}

// blocksOf is what a message says, if it says anything.
func blocksOf(m openai.Message, tools bool) (blocks []block) {
	if m.Role == "tool" && tools {
		return []block{{result: &result{plainID(m.ToolCallID), m.Content}}}
	}
	text := func(text string) {
		if !isBlank(text) {
			blocks = append(blocks, block{text: text})
		}
	}
	m.Split(text, func(i openai.Image) { blocks = append(blocks, block{image: &i}) })
	for _, c := range m.ToolCalls {
		if !tools {
			text(c.Name + " " + c.Arguments)
			continue
		}
		c.ID = plainID(c.ID)
		blocks = append(blocks, block{call: &c})
	}
	return blocks
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// opening is a token or two. The upper bound by which models of these providers
// are counted has room for it, since it takes 12 tokens for the framing of each
// message. It is also what Bedrock is told of a call without a result, which it refuses.
const opening = "..."

// plainID is id, or one that stands for it if it has more than Anthropic and Bedrock take:
// ids are made by other providers too, and by clients.
func plainID(id string) string {
	if isWord(id, 64, nameAlphabet) {
		return id
	}
	return derivedID(id)
}

// derivedID is an id that every server takes, always the same for the same id: as Mistral
// wants them, of nine letters and digits.
func derivedID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base32.StdEncoding.EncodeToString(sum[:])[:shortID]
}

const shortID = 9

// object is JSON for the arguments of a call, which must be an object there: one with what
// the model wrote in place of that, if it is none.
func object(arguments string) json.RawMessage {
	switch trimmed := strings.TrimSpace(arguments); {
	case trimmed == "":
		return json.RawMessage("{}")
	case trimmed[0] == '{' && json.Valid([]byte(trimmed)):
		return json.RawMessage(trimmed)
	}
	wrapped, err := encodeJSON(map[string]string{"arguments": arguments})
	if err != nil {
		return json.RawMessage("{}")
	}
	return wrapped
}

// schema is that of a tool's parameters, an object, whose type must be said here.
func schema(parameters json.RawMessage) json.RawMessage {
	var said struct{ Type any }
	members := bytes.TrimSpace(parameters)
	switch {
	case json.Unmarshal(members, &said) == nil && said.Type != nil:
		return members
	case len(members) == 0 || len(bytes.TrimSpace(members[1:])) == 1:
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return append([]byte(`{"type":"object",`), members[1:]...)
}

// content is what the data URL of an image holds, in base64.
func content(i *openai.Image) string {
	_, data, _ := strings.Cut(i.URL, ",")
	return data
}

// bytesOf is the image itself.
func bytesOf(i *openai.Image) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(content(i))
	if err != nil {
		return nil, impossible("an image is not in base64")
	}
	return b, nil
}

// turnsOf is the conversation of a request, if a provider of kind k can be asked it. What
// is wrong with it is the caller's doing, not the provider's: it counts as refused, not as
// unreachable.
func turnsOf(k kind.Kind, req Request, tools bool) (instructions []string, turns []turn, err error) {
	if err := req.check(); err != nil {
		return nil, nil, unsent(err)
	}
	asked := openai.ChatRequest{Messages: req.Messages, Tooling: req.Tooling, ResponseFormat: req.ResponseFormat}
	if name := k.Impossible(&asked); name != "" {
		return nil, nil, impossible("the provider cannot be asked " + name)
	}
	instructions, turns = conversation(req.Messages, tools)
	if len(turns) == 0 { // of messages, all that there was are results without text
		return nil, nil, impossible("no message has text")
	}
	return instructions, turns, nil
}
