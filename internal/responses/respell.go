package responses

import (
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// origin is where a message comes from, in paths of the request.
type origin struct {
	path   string
	plain  bool     // the whole message is one string
	result bool     // of a call
	parts  []string // of its content
	calls  []string
}

// Respell names what an error is about as the caller wrote it. err may come from whoever has
// got the ChatRequest.
func (r *Request) Respell(err *openai.Error) *openai.Error {
	respelled := *err
	respelled.Message = r.Spell(err.Message)
	if respelled.Param = r.Spell(err.Param); err.Param == "messages" {
		respelled.Param = "input"
	}
	if respelled.Param == "instructions" {
		respelled.Message = strings.Replace(respelled.Message, "instructions must be user or assistant", "instructions cannot be given", 1)
	}
	return &respelled
}

// Spell names what a text says of a chat request as the caller wrote it.
func (r *Request) Spell(text string) string {
	text = inChat().ReplaceAllStringFunc(text, r.path)
	return strings.Replace(text, "Messages of the role tool", "Items of the type function_call_output", 1)
}

// inChat finds the paths of a chat request that have another name here. Both are compiled
// for the first error: a start has no time for them.
var (
	inChat    = lazily(`\bmessages\[\d+\](?:\.(?:content|tool_calls)\[\d+\])?(?:\.\w+)*|\b(?:tools\[\d+\]\.function|tool_choice\.function|response_format(?:\.json_schema)?|max_completion_tokens|max_tokens|reasoning_effort)\b`)
	inMessage = lazily(`^messages\[(\d+)\](?:\.(content|tool_calls)\[(\d+)\])?(.*)$`)
)

func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// path is a path of a chat request as the caller wrote it.
func (r *Request) path(path string) string {
	switch path {
	case "response_format", "response_format.json_schema":
		return "text.format"
	case "max_tokens", "max_completion_tokens":
		return "max_output_tokens"
	case "reasoning_effort":
		return "reasoning.effort"
	}
	found := inMessage().FindStringSubmatch(path)
	if found == nil {
		return strings.TrimSuffix(path, ".function")
	}
	at, _ := strconv.Atoi(found[1]) // too large a number is none
	if at >= len(r.origins) {
		return path
	}
	return r.origins[at].name(found[2], found[3], found[4])
}

// name is the path of what has this name in the message: a list and an index in it, or "",
// and what is below.
func (o origin) name(list, index, below string) string {
	n, _ := strconv.Atoi(index)
	switch {
	case o.plain:
		return o.path
	case list == "content" && n < len(o.parts):
		return o.parts[n] + renamed(below)
	case list == "tool_calls" && n < len(o.calls):
		return o.calls[n] + renamed(below)
	case below == ".tool_calls" && len(o.calls) > 0:
		return o.calls[0]
	case o.result && below == ".content":
		return o.path + ".output"
	case o.result && below == ".role":
		return o.path + ".type"
	}
	return o.path + renamed(below)
}

// renamed is what is below an item or a part of one, as it is called here.
func renamed(below string) string {
	switch below {
	case ".id", ".tool_call_id":
		return ".call_id"
	case ".image_url.url":
		return ".image_url"
	case ".image_url.detail":
		return ".detail"
	}
	return strings.TrimPrefix(below, ".function")
}
