package provider

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// maxCalls bounds the calls of tools in one answer, as OpenAI's API does. Those beyond are
// passed over.
const maxCalls = 128

// maxWord bounds the ids, names and numbers that are kept, in bytes.
const maxWord = 256

// calls are those that an answer asks for, as their pieces come. Servers differ in how they
// say which piece belongs to which.
type calls struct {
	list []knownCall
	told int  // those of the list that are told, each under the next index
	over bool // there were more
}

// knownCall is one of them. It is told as soon as its name is here: nobody can make anything of
// a call that has none, or of that of a tool which the provider runs itself.
type knownCall struct {
	at      string // by what the server numbers it; "": by nothing
	id      string // as the server has it, perhaps none
	name    string // as the server has it; "": has not come
	index   int    // under which it is told
	pending []byte // arguments that came before the name
	some    bool   // there are arguments
	whole   bool   // they came as a value
	nesting nesting
	sum     uint64 // of the arguments, as sumOf has it
}

// piece is a part of a call as a server tells it: any may be missing.
type piece struct {
	at, id, name string
	arguments    string // JSON text, or some of it
	whole        bool   // it is a value's, and so all of it
	foreign      bool   // it begins a call of a tool that the provider runs itself
}

// add takes in a piece, and adds to p what is to be told now.
func (c *calls) add(p *Part, said piece) {
	for _, word := range []*string{&said.at, &said.id, &said.name} {
		*word = (*word)[:min(len(*word), maxWord)]
	}
	call := c.find(said)
	if call == nil {
		return
	}
	if call.id == "" {
		call.id = said.id
	}
	call.some, call.whole = call.some || !isBlank(said.arguments), call.whole || said.whole
	call.nesting.read(said.arguments)
	call.sum = sumOf(call.sum, said.arguments)
	switch {
	case call.name != "" && said.arguments != "":
		p.ToolCalls = append(p.ToolCalls, openai.ToolCall{Index: call.index, Arguments: said.arguments})
	case call.name != "":
	case said.name != "":
		call.name, call.index = said.name, c.told
		c.told++
		p.ToolCalls = append(p.ToolCalls, openai.ToolCall{
			Index: call.index, ID: c.idOf(call), Name: plainName(call.name), Arguments: string(call.pending) + said.arguments})
		call.pending = nil
	case len(call.pending)+len(said.arguments) <= maxEvent:
		call.pending = append(call.pending, said.arguments...)
	}
}

// find is the call that a piece belongs to, which may be a new one; nil: none.
//
//   - An id that a call has says it, unless the number is another's. Another id need not
//     say that the call is another: some servers make one for each piece.
//   - So does the number, where servers give one that is right. Some give none, or the same
//     for all: then a call has ended when the next begins, which says another name, or the
//     same one after arguments that are complete.
//   - What says neither its name nor a number that is known goes to the call before it.
func (c *calls) find(said piece) *knownCall {
	last := len(c.list) - 1
	if c.over { // and then it is not known
		last = -1
	}
	by := func(is func(*knownCall) bool) int {
		i := len(c.list) - 1
		for i >= 0 && !is(&c.list[i]) {
			i--
		}
		return i
	}
	i := -1
	if said.id != "" {
		i = by(func(k *knownCall) bool { return k.id == said.id && (k.at == "" || said.at == "" || k.at == said.at) })
	}
	switch {
	case i >= 0:
	case said.at != "":
		i = by(func(k *knownCall) bool { return k.at == said.at })
	case said.id == "", last >= 0 && c.list[last].id == "":
		i = last
	}
	if i < 0 && said.name == "" {
		i = last
	}
	if i >= 0 && !said.foreign {
		known := &c.list[i]
		same := said.id != "" && said.id == known.id
		switch ended := known.ended(said); {
		case said.name == "", known.name == "", !ended && (same || said.name == known.name):
			return known
		case same && ended && known.sum == sumOf(0, said.arguments):
			return nil // it is told again
		}
	}
	if len(c.list) >= maxCalls {
		c.over = true
		return nil
	}
	c.list = append(c.list, knownCall{at: said.at, id: said.id})
	return &c.list[len(c.list)-1]
}

// ended reports whether a call has come to its end before a piece that says its name: there
// are arguments, and these are others, or the id is.
func (c *knownCall) ended(next piece) bool {
	return (c.whole || c.nesting.done()) && (next.id != "" && next.id != c.id || !isBlank(next.arguments) || next.whole)
}

// finish tells what is only known once an answer has ended with p, if it does: that calls
// without arguments have none, and what the reason is. Servers say stop of an answer that
// calls tools, or the reverse.
func (c *calls) finish(p *Part) {
	switch p.FinishReason {
	case stopped, toolCalls:
	default:
		return
	}
	for i := range c.list {
		if call := &c.list[i]; call.name != "" && !call.some {
			call.some = true
			p.ToolCalls = append(p.ToolCalls, openai.ToolCall{Index: call.index, Arguments: "{}"})
		}
	}
	if c.told > 0 {
		p.FinishReason, p.UnknownReason = toolCalls, ""
	} else {
		p.FinishReason = stopped
	}
}

// idOf is the id under which a caller is told of a call: that of the server, if it is one
// and no other call's, or else a new one, which no other call of a conversation has.
func (c *calls) idOf(told *knownCall) string {
	for i := range c.list {
		if other := &c.list[i]; other != told && other.id == told.id {
			return newID()
		}
	}
	if !isPrintable(told.id) {
		return newID()
	}
	return told.id
}

// newID makes an id that every server takes, should it be sent back.
func newID() string { return rand.Text()[:shortID] }

// isPrintable reports whether id can be handed on: some servers' have colons and dots.
func isPrintable(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

// plainName is the name of a tool as a request may have it, or close to what a model has
// made up: it comes back with the conversation.
func plainName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && isWord(string(r), 1, nameAlphabet) {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 64)]
}

const nameAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// argumentsOf is JSON text for the arguments that a server gives as such, or, whole, as the
// value itself: an object in which nothing is yet is none.
func argumentsOf(raw json.RawMessage) (text string, whole bool) {
	switch trimmed := bytes.TrimSpace(raw); {
	case len(trimmed) == 0, string(trimmed) == "null":
		return "", false
	case trimmed[0] == '"':
		_ = json.Unmarshal(trimmed, &text)
		return text, false
	case trimmed[0] == '{' && len(bytes.TrimSpace(trimmed[1:])) == 1:
		return "", true
	default:
		return string(trimmed), true
	}
}

// wordOf is what a server calls something: text, or a number.
func wordOf(said any) string {
	switch said := said.(type) {
	case string:
		return said
	case float64:
		return strconv.FormatFloat(said, 'f', -1, 64)
	}
	return ""
}

// sumOf is a checksum of what sum is one of, and text behind it (FNV-1a).
func sumOf(sum uint64, text string) uint64 {
	for i := range len(text) {
		sum = (sum ^ uint64(text[i])) * 1099511628211
	}
	return sum
}

// nesting follows JSON as it comes, as far as needed to see its end.
type nesting struct {
	depth           int
	begun           bool
	quoted, escaped bool
}

func (n *nesting) read(text string) {
	for i := range len(text) {
		switch c := text[i]; {
		case n.escaped:
			n.escaped = false
		case n.quoted:
			n.quoted, n.escaped = c != '"', c == '\\'
		case c == '"':
			n.quoted, n.begun = true, true
		case c == '{', c == '[':
			n.depth, n.begun = n.depth+1, true
		case c == '}', c == ']':
			n.depth--
		}
	}
}

// done reports whether an object, a list or a text has come to its end.
func (n *nesting) done() bool { return n.begun && n.depth <= 0 && !n.quoted }
