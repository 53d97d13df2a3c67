package upstream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// What a chat costs beyond its texts, in tokens. OpenAI has published the first two
// ("How to count tokens with tiktoken", OpenAI's cookbook). The others were found by
// asking it for usage (github.com/hmarr/openai-chat-tokens), or are in answers that
// projects recorded for their tests (see package usage).
const (
	perMessage = 3 // and the role, which is one token
	perReply   = 3

	perCall     = 3  // of an assistant's message, and its name and arguments
	perParallel = 15 // of such a message, if it has several
	perResult   = 1  // of a tool's message, and the name of the function

	perTools     = 9  // if there are any
	gpt5Tools    = 80 // and for gpt-5 and what came after it
	gpt5Call     = 6  // and for each call, to such a model
	besideSystem = -4 // if there are any, and the system's message, with which they share one
	noChoice     = 1  // tool_choice none
	namedChoice  = 4  // and the name
)

// countPrompt counts a chat as OpenAI bills it.
func countPrompt(t *tokens.Tokenizer, r *request) int {
	n := perReply
	system := false
	gpt5 := strings.HasPrefix(r.Model, "gpt-5") || strings.HasPrefix(r.Model, "gpt-6")
	for _, m := range r.Messages {
		text := m.text
		if m.Role == "system" && !system {
			if system = true; len(r.Tools) > 0 {
				text += "\n"
			}
		}
		n += perMessage + 1 + t.Count(text)
		for _, c := range m.calls {
			n += perCall + t.Count(c.Function.Name) + t.Count(c.Function.Arguments)
			if gpt5 {
				n += gpt5Call
			}
		}
		if len(m.calls) > 1 {
			n += perParallel
		}
		if m.Role == "tool" {
			n += perResult + t.Count(m.answered)
		}
		for _, p := range m.pictures {
			n += countImage(r.Model, p)
		}
	}
	if len(r.Tools) == 0 {
		return n
	}
	n += perTools + t.Count(declarations(r.Tools))
	if gpt5 {
		n += gpt5Tools
	}
	if system {
		n += besideSystem
	}
	switch r.choice.mode {
	case "none":
		n += noChoice
	case "":
		n += namedChoice + t.Count(r.choice.name)
	}
	return n
}

// declarations writes tools as OpenAI shows them to its models: as TypeScript.
func declarations(tools []tool) string {
	var b strings.Builder
	b.WriteString("namespace functions {\n\n")
	for _, t := range tools {
		if t.Function.Description != "" {
			fmt.Fprintf(&b, "// %s\n", t.Function.Description)
		}
		if s := readSchema(t.Function.Parameters); len(s.properties()) > 0 {
			fmt.Fprintf(&b, "type %s = (_: {\n%s\n}) => any;\n\n", t.Function.Name, memberLines(s, 0))
		} else {
			fmt.Fprintf(&b, "type %s = () => any;\n\n", t.Function.Name)
		}
	}
	b.WriteString("} // namespace functions")
	return b.String()
}

// deepest is the indent from which on descriptions are left out.
const deepest = 2

func memberLines(s schema, indent int) string {
	required := read[[]string](s, "required")
	var lines []string
	for _, m := range s.properties() {
		of := readSchema(m.Value)
		if text := read[string](of, "description"); text != "" && indent < deepest {
			lines = append(lines, "// "+text)
		}
		mark := "?: "
		if slices.Contains(required, m.Name) {
			mark = ": "
		}
		lines = append(lines, m.Name+mark+typeName(of, indent)+",")
	}
	margin := strings.Repeat(" ", indent)
	return margin + strings.Join(lines, "\n"+margin)
}

// typeName is a type in TypeScript.
func typeName(s schema, indent int) string {
	if options := read[[]json.RawMessage](s, "anyOf"); len(options) > 0 {
		names := make([]string, len(options))
		for i, raw := range options {
			names[i] = typeName(readSchema(raw), indent)
		}
		return strings.Join(names, " | ")
	}
	if values := read[[]json.RawMessage](s, "enum"); len(values) > 0 {
		names := make([]string, len(values))
		for i, raw := range values {
			names[i] = string(raw)
		}
		return strings.Join(names, " | ")
	}
	var names []string
	for _, kind := range s.types() {
		names = append(names, typeOfKind(kind, s, indent))
	}
	return strings.Join(names, " | ")
}

func typeOfKind(kind string, s schema, indent int) string {
	switch kind {
	case "integer":
		return "number"
	case "object":
		return "{\n" + memberLines(s, indent+2) + "\n}"
	case "array":
		if items := readSchema(s["items"]); items != nil {
			return typeName(items, indent) + "[]"
		}
		return "any[]"
	}
	return kind
}
