// Package draw draws requests of every kind that a chat can have, within what a parser
// lets through: for properties that must hold whatever is asked.
package draw

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// Chat draws a conversation that ends with the caller's turn: texts, images, calls of tools
// with their results, tools and a choice among them, a wish for reasoning. A kind is left out
// by its name: tools, images, effort.
func Chat(t *rapid.T, without ...string) openai.ChatRequest {
	has := func(kind string) bool {
		for _, w := range without {
			if w == kind {
				return false
			}
		}
		return rapid.Bool().Draw(t, kind)
	}
	var r openai.ChatRequest
	tools, images := has("tools"), has("images")
	if tools {
		for i := range rapid.IntRange(1, 4).Draw(t, "tools") {
			r.Tools = append(r.Tools, tool(t, fmt.Sprintf("%s_%d", word.Draw(t, "name"), i)))
		}
		r.ToolChoice = rapid.SampledFrom([]openai.ToolChoice{{}, {Mode: "none"}, {Mode: "auto"}, {Mode: "required"}, {Name: r.Tools[0].Name}}).Draw(t, "choice")
	}
	for range rapid.IntRange(0, 3).Draw(t, "turns") {
		r.Messages = append(r.Messages, user(t, images))
		if tools && rapid.Bool().Draw(t, "called") {
			r.Messages = append(r.Messages, called(t, r.Tools)...)
		}
		r.Messages = append(r.Messages, openai.Message{Role: "assistant", Content: Text.Draw(t, "answer")})
	}
	r.Messages = append(r.Messages, user(t, images))
	if has("effort") {
		r.ReasoningEffort = rapid.SampledFrom(openai.Efforts).Draw(t, "effort")
	}
	return r
}

var (
	word = rapid.StringMatching(`[a-z]{1,12}`)
	// Text draws a text in several scripts, which may be empty.
	Text = rapid.Custom(func(t *rapid.T) string {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"The quick brown fox. ", "漢字かな", "😀👩\u200d👧🏽", "{\"a\": [1, 2]}\n", "0123456789", "  \n\t", "kernel_panic", "çédille ", "<|endoftext|>", "ไทย"}), 0, 12).Draw(t, "pieces")
		return strings.Join(pieces, "")
	})
)

func user(t *rapid.T, images bool) openai.Message {
	m := openai.Message{Role: "user", Content: Text.Draw(t, "text")}
	if images {
		for range rapid.IntRange(0, 3).Draw(t, "images") {
			i := openai.Image{At: rapid.IntRange(0, len(m.Content)).Draw(t, "at"), Type: "image/gif", Detail: rapid.SampledFrom([]string{"", "low", "high", "auto"}).Draw(t, "detail"),
				Width: rapid.IntRange(1, 6000).Draw(t, "width"), Height: rapid.IntRange(1, 6000).Draw(t, "height")}
			for i.At > 0 && i.At < len(m.Content) && m.Content[i.At]&0xc0 == 0x80 { // within a character
				i.At--
			}
			if n := len(m.Images); n > 0 {
				i.At = max(i.At, m.Images[n-1].At)
			}
			i.URL = gif(i.Width, i.Height)
			m.Images = append(m.Images, i)
		}
	}
	return m
}

// gif is the header of an image, which is all that is looked at.
func gif(width, height int) string {
	header := binary.LittleEndian.AppendUint16([]byte("GIF89a"), uint16(width))
	header = binary.LittleEndian.AppendUint16(header, uint16(height))
	return "data:image/gif;base64," + base64.StdEncoding.EncodeToString(append(header, 0, 0, 0))
}

// called is an answer that calls tools, and their results.
func called(t *rapid.T, tools []openai.Tool) []openai.Message {
	call := openai.Message{Role: "assistant"}
	list := []openai.Message{}
	for i := range rapid.IntRange(1, 3).Draw(t, "calls") {
		id := fmt.Sprintf("call_%d_%s", i, word.Draw(t, "id"))
		arguments, _ := json.Marshal(map[string]any{word.Draw(t, "argument"): Text.Draw(t, "value"), "n": i})
		call.ToolCalls = append(call.ToolCalls, openai.ToolCall{Index: i, ID: id, Name: rapid.SampledFrom(tools).Draw(t, "called").Name, Arguments: string(arguments)})
		list = append(list, openai.Message{Role: "tool", ToolCallID: id, Content: Text.Draw(t, "result")})
	}
	return append([]openai.Message{call}, list...)
}

func tool(t *rapid.T, name string) openai.Tool {
	return openai.Tool{Name: name, Description: Text.Draw(t, "description"), Parameters: json.RawMessage(object(t, 2))}
}

// object is a schema of an object, written as it comes.
func object(t *rapid.T, depth int) string {
	var properties []string
	for i := range rapid.IntRange(0, 3).Draw(t, "properties") {
		var schema string
		switch kind := rapid.IntRange(0, 4).Draw(t, "type"); {
		case kind == 0 && depth > 0:
			schema = object(t, depth-1)
		case kind == 1 && depth > 0:
			schema = `{"type":"array","items":` + object(t, depth-1) + `}`
		case kind == 2:
			schema = `{"type":"string","enum":` + string(openai.Encode(rapid.SliceOfNDistinct(word, 1, 5, rapid.ID).Draw(t, "enum"))) + `}`
		case kind == 3:
			schema = `{"type":"number"}`
		default:
			schema = `{"type":"string","description":` + string(openai.Encode(Text.Draw(t, "of"))) + `}`
		}
		properties = append(properties, fmt.Sprintf(`"%s_%d":%s`, word.Draw(t, "property"), i, schema))
	}
	return `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`
}
