package responses

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// The states of a response and of its items.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	failed     = "failed"
)

// Answer puts a response together from what its model says, and tells of each step as the
// events of a stream: Begin, Add for each piece, then End or Fail. Each of them returns its
// events, ready to be sent, in the order and numbering of OpenAI's API. It is not safe for
// concurrent use.
type Answer struct {
	response Response
	id       string
	begun    bool
	items    []*output
	log      log
}

// Answer begins an answer to r.
func (r *Request) Answer(h Head) *Answer { return &Answer{response: r.response(h), id: h.ID} }

// output is an item of the answer as far as it has come.
type output struct {
	at    int    // its index
	kind  string // msg, fc or rs, with which its id begins
	id    string
	state string
	call  openai.ToolCall // of fc, but its Arguments
	parts []*part         // fc and rs have one
}

// part is a text of an item.
type part struct {
	refusal bool
	done    bool
	text    strings.Builder
}

// shown is an item as it stands.
func (o *output) shown() any {
	switch o.kind {
	case "fc":
		return callItem{o.id, "function_call", o.state, o.parts[0].text.String(), o.call.ID, o.call.Name}
	case "rs":
		item := reasoningItem{o.id, "reasoning", []any{}}
		for _, p := range o.parts {
			item.Summary = append(item.Summary, summaryPart{"summary_text", p.text.String()})
		}
		return item
	}
	item := messageItem{o.id, "message", o.state, []any{}, "assistant"}
	for _, p := range o.parts {
		item.Content = append(item.Content, p.shown())
	}
	return item
}

func (p *part) shown() any {
	if p.refusal {
		return refusalPart{"refusal", p.text.String()}
	}
	return textPart{"output_text", []any{}, []any{}, p.text.String()}
}

// Begin tells that the answer has begun. It need not be called where no event is sent.
func (a *Answer) Begin() []byte {
	a.begun = true
	a.log.response("response.created", a.response)
	a.log.response("response.in_progress", a.response)
	return a.log.take()
}

// Add adds a piece.
func (a *Answer) Add(d *openai.Delta) []byte {
	if d.Reasoning != "" {
		o := a.open("rs", nil)
		a.log.delta(o, 0, "response.reasoning_summary_text.delta", d.Reasoning)
	}
	if d.Content != nil && *d.Content != "" {
		a.say(*d.Content, false)
	}
	if d.Refusal != nil && *d.Refusal != "" {
		a.say(*d.Refusal, true)
	}
	for _, piece := range d.ToolCalls {
		o := a.open("fc", (*openai.ToolCall)(&piece))
		if o.state == inProgress && piece.Arguments != "" {
			a.log.delta(o, 0, "response.function_call_arguments.delta", piece.Arguments)
		}
	}
	return a.log.take()
}

// say adds to the text of a message, or to its refusal.
func (a *Answer) say(text string, refusal bool) {
	o := a.open("msg", nil)
	n := len(o.parts) - 1
	if n < 0 || o.parts[n].refusal != refusal {
		if n >= 0 {
			a.log.partDone(o, n)
		}
		o.parts = append(o.parts, &part{refusal: refusal})
		n++
		a.log.partAdded(o, n)
	}
	kind := "response.output_text.delta"
	if refusal {
		kind = "response.refusal.delta"
	}
	a.log.delta(o, n, kind, text)
}

// open is the item to which a piece of this kind belongs: the one that is open, or a new
// one. Others end then, but for a call whose arguments are no JSON yet: servers that send
// several calls at a time may send more of it.
func (a *Answer) open(kind string, call *openai.ToolCall) *output {
	for _, o := range a.items {
		if call == nil && o.kind == kind && o.state == inProgress || call != nil && o.kind == kind && o.call.Index == call.Index {
			return o
		}
	}
	for _, o := range a.items {
		if o.state == inProgress && (o.kind != "fc" || json.Valid([]byte(o.parts[0].text.String()))) {
			a.close(o, completed)
		}
	}
	o := &output{at: len(a.items), kind: kind, id: fmt.Sprintf("%s_%s_%d", kind, a.id, len(a.items)), state: inProgress}
	if kind != "msg" {
		o.parts = []*part{{}}
	}
	if call != nil {
		o.call = *call
		if o.call.ID == "" {
			o.call.ID = fmt.Sprintf("call_%s_%d", a.id, o.at)
		}
	}
	a.items = append(a.items, o)
	a.log.itemAdded(o)
	return o
}

func (a *Answer) close(o *output, state string) {
	for n, p := range o.parts {
		if !p.done {
			a.log.partDone(o, n)
		}
	}
	o.state = state
	a.log.itemDone(o)
}

// Last is how an answer ends.
type Last struct {
	FinishReason string // of a chat completion
	Usage        price.Usage
	Completed    int64 // when it was, in seconds since 1970
	Notice       string
	Limits       any // what is left of the caller's; nil: not told
}

// End ends the answer.
func (a *Answer) End(last Last) []byte {
	r := &a.response
	state, reason := incomplete, ""
	switch last.FinishReason {
	case "length":
		reason = "max_output_tokens"
	case "content_filter":
		reason = "content_filter"
	default:
		state = completed
		r.Completed = &last.Completed
	}
	if reason != "" {
		r.Incomplete = &incompleteDetails{reason}
	}
	for _, o := range a.items {
		if o.state == inProgress {
			a.close(o, state)
		}
	}
	r.Status, r.Usage, r.Notice, r.Limits = state, usageOf(last.Usage), last.Notice, last.Limits
	a.fill()
	a.log.response("response."+state, *r)
	return a.log.take()
}

// Fail ends a stream that has failed.
func (a *Answer) Fail(err *openai.Error) []byte {
	events := []byte{}
	if !a.begun {
		events = a.Begin()
	}
	for _, o := range a.items {
		if o.state == inProgress {
			o.state = incomplete
		}
	}
	a.response.Status, a.response.Error = failed, failureOf(err)
	a.fill()
	a.log.failure(err)
	a.log.response("response.failed", a.response)
	return append(events, a.log.take()...)
}

// Response is the answer as it stands.
func (a *Answer) Response() Response { return a.response }

func (a *Answer) fill() {
	a.response.Output = []any{}
	for _, o := range a.items {
		a.response.Output = append(a.response.Output, o.shown())
	}
}
