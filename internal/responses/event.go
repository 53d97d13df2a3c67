package responses

import (
	"bytes"
	"encoding/json"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// log numbers events and writes them.
type log struct {
	next   int // number
	events bytes.Buffer
}

// event is any event of a stream: its type decides which members there are.
type event struct {
	Type         string          `json:"type"`
	Number       int             `json:"sequence_number"`
	Response     *Response       `json:"response,omitempty"`
	OutputIndex  *int            `json:"output_index,omitempty"`
	Item         any             `json:"item,omitempty"`
	ItemID       string          `json:"item_id,omitempty"`
	ContentIndex *int            `json:"content_index,omitempty"`
	SummaryIndex *int            `json:"summary_index,omitempty"`
	Part         any             `json:"part,omitempty"`
	Delta        *string         `json:"delta,omitempty"`
	Text         *string         `json:"text,omitempty"`
	Refusal      *string         `json:"refusal,omitempty"`
	Logprobs     []any           `json:"logprobs,omitzero"`
	Arguments    *string         `json:"arguments,omitempty"`
	Name         string          `json:"name,omitempty"`
	Code         string          `json:"code,omitempty"`
	Message      string          `json:"message,omitempty"`
	Param        json.RawMessage `json:"param,omitempty"`
	Error        json.RawMessage `json:"error,omitempty"`
}

func (l *log) write(e event) {
	e.Number = l.next
	l.next++
	l.events.WriteString("event: " + e.Type + "\n")
	l.events.Write(openai.Event(openai.Encode(e)))
}

// take are the events since it was called last.
func (l *log) take() []byte {
	taken := bytes.Clone(l.events.Bytes())
	l.events.Reset()
	return taken
}

func (l *log) response(kind string, r Response) { l.write(event{Type: kind, Response: &r}) }

// itemAdded tells of an item whose text is still to come, and opens the summary of one that
// reasons: it has no other text.
func (l *log) itemAdded(o *output) {
	added := *o
	if o.kind == "rs" {
		added.parts = nil
	}
	l.write(event{Type: "response.output_item.added", OutputIndex: &o.at, Item: added.shown()})
	if o.kind == "rs" {
		l.write(event{Type: "response.reasoning_summary_part.added", OutputIndex: &o.at, ItemID: o.id, SummaryIndex: new(int), Part: summaryPart{"summary_text", ""}})
	}
}

func (l *log) itemDone(o *output) {
	l.write(event{Type: "response.output_item.done", OutputIndex: &o.at, Item: o.shown()})
}

func (l *log) partAdded(o *output, n int) {
	l.write(event{Type: "response.content_part.added", OutputIndex: &o.at, ItemID: o.id, ContentIndex: &n, Part: o.parts[n].shown()})
}

// delta adds a text to a part, and tells of it.
func (l *log) delta(o *output, n int, kind, text string) {
	o.parts[n].text.WriteString(text)
	e := event{Type: kind, OutputIndex: &o.at, ItemID: o.id, Delta: &text}
	switch {
	case o.kind == "rs":
		e.SummaryIndex = &n
	case o.kind == "msg":
		e.ContentIndex = &n
		if !o.parts[n].refusal {
			e.Logprobs = []any{}
		}
	}
	l.write(e)
}

// partDone repeats the whole text of a part.
func (l *log) partDone(o *output, n int) {
	p := o.parts[n]
	p.done = true
	text := p.text.String()
	done := event{OutputIndex: &o.at, ItemID: o.id}
	switch {
	case o.kind == "fc":
		done.Type, done.Arguments, done.Name = "response.function_call_arguments.done", &text, o.call.Name
		l.write(done)
		return
	case o.kind == "rs":
		done.SummaryIndex = &n
		done.Type, done.Text = "response.reasoning_summary_text.done", &text
		l.write(done)
		done.Type, done.Text, done.Part = "response.reasoning_summary_part.done", nil, summaryPart{"summary_text", text}
		l.write(done)
		return
	}
	done.ContentIndex = &n
	if p.refusal {
		done.Type, done.Refusal = "response.refusal.done", &text
	} else {
		done.Type, done.Text, done.Logprobs = "response.output_text.done", &text, []any{}
	}
	l.write(done)
	done = event{Type: "response.content_part.done", OutputIndex: &o.at, ItemID: o.id, ContentIndex: &n, Part: p.shown()}
	l.write(done)
}

// failure tells of an error as the API's reference has it, and, under error, as the API sends
// it and its clients look for it.
func (l *log) failure(err *openai.Error) {
	var envelope struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(err.Envelope(), &envelope) != nil {
		panic("an envelope is an object")
	}
	param := json.RawMessage("null")
	if err.Param != "" {
		param = openai.Encode(err.Param)
	}
	l.write(event{Type: "error", Code: string(err.Code), Message: err.Message, Param: param, Error: envelope.Error})
}
