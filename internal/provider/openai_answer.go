package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// completionChunks are the events of a stream. Its proper end is [DONE] after a
// finish_reason. Compatible servers may leave [DONE] out, so an answer whose
// finish_reason and usage have arrived is complete too, whatever becomes of its
// connection.
type completionChunks struct {
	events *eventReader
	chunk  completion // the last; its memory is used again
	said   bool       // the answer has said something
	text   bool       // text came in deltas: a whole message at the end repeats it
	calls  calls
	called bool // so did calls
}

func (c *completionChunks) complete() bool { return true }

func (c *completionChunks) next() (p Part, end bool, err error) {
	data, err := c.events.next()
	if err != nil {
		return Part{}, false, err
	}
	switch data = bytes.TrimSpace(data); {
	case bytes.HasPrefix(data, []byte("[DONE]")):
		return Part{}, true, nil
	case isKeepAlive(data):
		return Part{}, false, nil
	}
	p, err = c.read(data)
	if err == nil && c.events.failing && len(c.chunk.Choices) == 0 {
		err = saidFailure{codeOf(data)}
	}
	return p, false, err
}

// isKeepAlive reports whether data that is no JSON is one of the words that servers send
// so that nobody takes them for gone.
func isKeepAlive(data []byte) bool {
	if len(data) > 30 || bytes.HasPrefix(data, []byte("{")) {
		return false
	}
	switch strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return -1
		}
		return r
	}, strings.ToLower(string(data))) {
	case "ping", "pong", "keepalive", "heartbeat", "processing", "openrouterprocessing":
		return true
	}
	return len(data) == 0
}

// read takes in one chunk. Its text and usage count whatever else is wrong with it. One
// that says nothing is an empty part.
func (c *completionChunks) read(data []byte) (p Part, err error) {
	if err := c.chunk.parse(data); err != nil {
		return Part{}, err
	}
	choice := c.chunk.choice()
	if choice != nil {
		choice.Delta.tell(&p)
		c.text = c.text || p.says()
		c.called = choice.Delta.call(&p, &c.calls, false) || c.called
		if !c.text {
			choice.tell(&p, &choice.Message)
		}
		if !c.called {
			choice.Message.call(&p, &c.calls, true)
		}
	}
	c.said = c.said || p.says()
	p.Usage = c.chunk.usage(choice, c.said)
	err = c.chunk.end(choice, data, &p)
	c.calls.finish(&p)
	return p, err
}

// parseCompletionWhole reads a chat.completion, or chunks one after the other, as some
// servers stream them. Its text and usage count whatever else is wrong with it.
func parseCompletionWhole(body []byte) (p Part, err error) {
	var c completion
	var calls calls
	if c.parse(body) != nil {
		return parseInARow(body)
	}
	choice := c.choice()
	if choice != nil {
		choice.tell(&p, &choice.Message, &choice.Delta)
		if !choice.Message.call(&p, &calls, true) {
			choice.Delta.call(&p, &calls, true)
		}
	}
	p.Usage = c.usage(choice, p.says())
	switch err = c.end(choice, body, &p); {
	case err != nil || p.FinishReason != "":
	case choice == nil:
		err = errMalformed
	case p.says() && choice.Delta.isZero(): // whose end is that of its JSON
		p.FinishReason, p.UnknownReason = stopped, "none"
	default:
		err = errUnfinished
	}
	calls.finish(&p)
	return p, err
}

// parseInARow reads an answer that is more than one JSON value. What follows the finish
// reason takes nothing from it.
func parseInARow(body []byte) (all Part, err error) {
	var chunks completionChunks
	var content, refusal, reasoning strings.Builder
	for values := json.NewDecoder(bytes.NewReader(body)); err == nil; {
		var value json.RawMessage
		if err = values.Decode(&value); err != nil {
			break
		}
		var p Part
		p, err = chunks.read(value)
		content.WriteString(p.Content)
		refusal.WriteString(p.Refusal)
		reasoning.WriteString(p.Reasoning)
		all.ToolCalls = append(all.ToolCalls, p.ToolCalls...)
		if all.FinishReason == "" {
			all.FinishReason, all.UnknownReason = p.FinishReason, p.UnknownReason
		}
		all.Usage = larger(all.Usage, p.Usage)
	}
	all.Content, all.Refusal, all.Reasoning = content.String(), refusal.String(), reasoning.String()
	switch said := saidIn(err); {
	case said != nil:
		all.FinishReason, all.UnknownReason = "", ""
		return all, said
	case all.FinishReason != "":
		return all, nil
	case errors.Is(err, io.EOF):
		return all, errUnfinished
	}
	return all, errMalformed
}

// completion is a chat.completion or a chat.completion.chunk. What is not needed is not
// here. What is may be of any kind: a member of another kind than it should be hides no
// other.
type completion struct {
	Object  any             `json:"object"`
	Type    any             `json:"type"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	XGroq   struct {
		Usage *usage `json:"usage"`
	} `json:"x_groq"` // Groq's, of the last chunk
}

type choice struct {
	Index        any             `json:"index"`
	Message      message         `json:"message"` // of a whole answer
	Delta        message         `json:"delta"`   // of a chunk
	Text         any             `json:"text"`    // of servers that go by the older completions
	FinishReason any             `json:"finish_reason"`
	Usage        *usage          `json:"usage"` // Moonshot's, of the last chunk
	Error        json.RawMessage `json:"error"` // OpenRouter's, of an answer that failed on the way
}

type message struct {
	Content          any `json:"content"`
	Text             any `json:"text"`
	Refusal          any `json:"refusal"`
	ReasoningContent any `json:"reasoning_content"` // DeepSeek, vLLM, Qwen
	Reasoning        any `json:"reasoning"`         // OpenRouter, Groq
	Thinking         any `json:"thinking"`

	ToolCalls    toolCallList `json:"tool_calls"`
	FunctionCall *function    `json:"function_call"` // of servers that go by the older form
}

func (m *message) isZero() bool {
	for _, said := range [...]any{m.Content, m.Text, m.Refusal, m.ReasoningContent, m.Reasoning, m.Thinking} {
		if said != nil {
			return false
		}
	}
	return m.ToolCalls == nil && m.FunctionCall == nil
}

// toolCallList is a list of calls, or the only one.
type toolCallList []toolCall

// UnmarshalJSON never fails: what cannot be understood hides no other.
func (list *toolCallList) UnmarshalJSON(raw []byte) error {
	var all []toolCall
	var one toolCall
	if err := json.Unmarshal(raw, &all); (err == nil || isOtherKind(err)) && len(all) > 0 {
		*list = all
	} else if _ = json.Unmarshal(raw, &one); len(one.Function.Arguments)+len(one.Arguments) > 0 {
		*list = toolCallList{one}
	}
	return nil
}

type toolCall struct {
	Index    any      `json:"index"` // of a chunk
	ID       any      `json:"id"`
	Function function `json:"function"`
	function          // of servers that leave out one level
}

type function struct {
	Name      any             `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// parse reads data, which must be JSON. A list stands for its only element, and so does
// a choice for the list of it.
func (c *completion) parse(data []byte) error {
	clear(c.Choices[:cap(c.Choices)]) // or else the next would show through
	*c = completion{Choices: c.Choices[:0]}
	err := json.Unmarshal(data, c)
	if err == nil {
		return nil
	}
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return errMalformed
	}
	var list []json.RawMessage
	if json.Unmarshal(data, &list) == nil && len(list) == 1 && list[0][0] == '{' {
		return c.parse(list[0])
	}
	if len(c.Choices) == 0 {
		var one struct{ Choices *choice }
		if _ = json.Unmarshal(data, &one); one.Choices != nil {
			c.Choices = append(c.Choices, *one.Choices)
		}
	}
	return nil
}

// choice is the choice with index 0, or else the first; nil if there is none. No more
// than one is ever asked for.
func (c *completion) choice() *choice {
	if len(c.Choices) == 0 {
		return nil
	}
	for i := range c.Choices {
		switch c.Choices[i].Index {
		case nil, 0.0, "0":
			return &c.Choices[i]
		}
	}
	return &c.Choices[0]
}

// end takes in how the answer ends, if it does with c, of which data is the text.
func (c *completion) end(choice *choice, data []byte, p *Part) error {
	switch {
	case saysError(c.Error):
		return saidFailure{codeOf(c.Error)}
	case choice == nil && (c.Object == "error" || c.Type == "error"):
		return saidFailure{codeOf(data)}
	case choice == nil:
		return nil
	case saysError(choice.Error):
		return saidFailure{codeOf(choice.Error)}
	}
	return p.finish(choice.FinishReason)
}

// saysError reports whether an error member tells of an error: some servers send an
// empty one with every answer, or one whose members are all empty.
func saysError(raw json.RawMessage) bool {
	switch string(bytes.Join(bytes.Fields(raw), nil)) {
	case "", "null", "false", "0", `""`, "{}", "[]":
		return false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return true
	}
	for _, member := range members {
		if saysError(member) {
			return true
		}
	}
	return false
}

// says reports whether there is some text in p, or a call of a tool.
func (p *Part) says() bool { return p.Content != "" || p.Refusal != "" || len(p.ToolCalls) > 0 }

// tell adds to p the text of the first that has some: of messages, then of c's own.
func (c *choice) tell(p *Part, messages ...*message) {
	for _, m := range messages {
		if !p.says() {
			m.tell(p)
		}
	}
	if !p.says() {
		tell(c.Text, &p.Content, p)
	}
}

// tell adds to p what m says.
func (m *message) tell(p *Part) {
	tell(m.Content, &p.Content, p)
	if p.Content == "" {
		tell(m.Text, &p.Content, p)
	}
	tell(m.Refusal, &p.Refusal, p)
	for _, thought := range [...]any{m.ReasoningContent, m.Reasoning, m.Thinking} { // each may repeat the one before
		if p.Reasoning == "" {
			tell(thought, &p.Reasoning, p)
		}
	}
}

// call adds to p the calls of m, or pieces of some, and reports whether there are any. In
// a list that is whole each stands for itself.
func (m *message) call(p *Part, calls *calls, whole bool) bool {
	list := m.ToolCalls
	if len(list) == 0 && m.FunctionCall != nil {
		list = toolCallList{{Function: *m.FunctionCall}}
	}
	for i, t := range list {
		said := piece{at: wordOf(t.Index), id: wordOf(t.ID), name: wordOf(t.Function.Name)}
		arguments := t.Function.Arguments
		if said.name == "" {
			said.name = wordOf(t.Name)
		}
		if arguments == nil {
			arguments = t.Arguments
		}
		if said.at == "" && whole && len(list) > 1 {
			said.at = "in the list " + strconv.Itoa(i)
		}
		said.arguments, said.whole = argumentsOf(arguments)
		calls.add(p, said)
	}
	return len(list) > 0
}

// tell adds to where what said is: a string, a number, an object with text, or a list of
// parts, some of which may belong elsewhere in p.
func tell(said any, where *string, p *Part) {
	switch said := said.(type) {
	case string:
		*where += said
	case float64:
		*where += strconv.FormatFloat(said, 'f', -1, 64)
	case map[string]any, []any:
		var t teller
		t.tell(said, &t.here)
		*where += t.here.String()
		p.Refusal += t.refusal.String()
		p.Reasoning += t.reasoning.String()
	}
}

// teller collects what parts say.
type teller struct{ here, refusal, reasoning strings.Builder }

func (t *teller) tell(said any, where *strings.Builder) {
	switch said := said.(type) {
	case string:
		where.WriteString(said)
	case []any:
		for _, part := range said {
			t.tell(part, where)
		}
	case map[string]any:
		kind, _ := said["type"].(string)
		members := [...]string{"text", "content", "value"}
		switch {
		case strings.Contains(kind, "refusal"):
			where, members[1] = &t.refusal, "refusal"
		case strings.Contains(kind, "think"), strings.Contains(kind, "reason"):
			where, members[1], members[2] = &t.reasoning, "thinking", "reasoning"
		}
		for _, name := range members {
			if what := said[name]; what != nil {
				t.tell(what, where)
				return
			}
		}
	}
}

// usage is a report in the forms of many servers. Details of another kind than they
// should be tell nothing.
type usage struct {
	Prompt     count `json:"prompt_tokens"`
	Completion count `json:"completion_tokens"`
	Total      count `json:"total_tokens"`
	// By Anthropic's names, where a server has kept them.
	Input         *count `json:"input_tokens"`
	Output        *count `json:"output_tokens"`
	CacheRead     count  `json:"cache_read_input_tokens"`
	CacheCreation count  `json:"cache_creation_input_tokens"`

	CacheHit          count        `json:"prompt_cache_hit_tokens"` // DeepSeek
	Cached            count        `json:"cached_tokens"`           // Moonshot
	PromptDetails     inputDetails `json:"prompt_tokens_details"`
	InputDetails      inputDetails `json:"input_tokens_details"`
	CompletionDetails struct {
		Reasoning count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

type inputDetails struct {
	Cached        count `json:"cached_tokens"`
	CacheRead     count `json:"cache_read_input_tokens"`
	CacheWrite    count `json:"cache_write_tokens"`
	CacheCreation count `json:"cache_creation_input_tokens"`
}

// count is a number of tokens: -1 if it cannot be one, notANumber if it is of another
// kind.
type count int64

const notANumber count = -2

// UnmarshalJSON never fails. A number may be written as a fraction, if it is whole.
func (c *count) UnmarshalJSON(raw []byte) error {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	f, float := 0.0, error(nil)
	if err != nil {
		f, float = strconv.ParseFloat(string(raw), 64)
	}
	switch {
	case string(raw) == "null":
	case err == nil:
		*c = count(max(n, -1))
	case float != nil:
		*c = notANumber
	case f == math.Trunc(f) && math.Abs(f) <= 1<<40:
		*c = count(max(f, -1))
	default:
		*c = -1
	}
	return nil
}

// usage is the largest report in c that can be true of an answer with or without text,
// wherever it stands; nil if there is none.
func (c *completion) usage(choice *choice, text bool) *price.Usage {
	found := c.Usage.read(text)
	if choice != nil {
		found = larger(found, choice.Usage.read(text))
	}
	return larger(found, c.XGroq.Usage.read(text))
}

// read gives the usage that u tells, or nil if there is none that can be true of an
// answer with or without text. Compatible servers differ in ways that cost money:
//   - xAI and Gemini leave reasoning out of completion_tokens but not out of
//     total_tokens, so the larger output of the two counts.
//   - cache reads are in prompt_tokens_details, or beside it by one of three names;
//     cache writes are cache_write_tokens (OpenAI since GPT-5.6, OpenRouter) or
//     cache_creation_input_tokens, in the details (Qwen) or beside them (LiteLLM).
//   - input_tokens leaves out what was read from a cache and written to it, if that is
//     beside it as in Anthropic's API.
func (u *usage) read(text bool) *price.Usage {
	if u == nil {
		return nil
	}
	w := *u
	if w.Prompt == 0 && w.Input != nil {
		w.Prompt = *w.Input
		if isCount(w.Prompt) && isCount(w.CacheRead) && isCount(w.CacheCreation) {
			w.Prompt += w.CacheRead + w.CacheCreation
		}
	}
	if w.Completion == 0 && w.Output != nil {
		w.Completion = *w.Output
	}
	if w.Total == notANumber { // it is not needed
		w.Total = 0
	}
	if !isCount(w.Prompt) || !isCount(w.Completion) || !isCount(w.Total) {
		return nil
	}
	in, also := w.PromptDetails, w.InputDetails
	return plausible(price.Usage{
		Input:       int64(w.Prompt),
		CachedInput: most(in.Cached, in.CacheRead, also.Cached, w.Cached, w.CacheHit, w.CacheRead),
		CacheWrite:  most(in.CacheWrite, in.CacheCreation, also.CacheWrite, w.CacheCreation),
		Output:      int64(max(w.Completion, w.Total-w.Prompt)),
		Reasoning:   most(w.CompletionDetails.Reasoning),
	}, text)
}

// most is the largest of ns that are numbers, or negative if one of them is.
func most(ns ...count) int64 {
	ns = slices.DeleteFunc(ns, func(n count) bool { return n == notANumber })
	if len(ns) == 0 {
		return 0
	}
	if least := slices.Min(ns); least < 0 {
		return int64(least)
	}
	return int64(slices.Max(ns))
}
