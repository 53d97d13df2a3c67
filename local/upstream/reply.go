package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// reply sends an answer.
type reply struct {
	w        http.ResponseWriter
	ctx      context.Context // the client's
	envelope envelope
	answer   answer
	usage    price.Usage
	fail     string                 // as in markers
	spend    func(tokens int) error // makes tokens of the answer
}

// whole sends it in one piece.
func (r *reply) whole() error {
	for _, p := range r.answer.pieces {
		if err := r.spend(p.cost); err != nil {
			return err
		}
	}
	if r.fail == "stall" {
		return r.stall()
	}
	r.envelope.Object = "chat.completion"
	r.envelope.Choices = []choice{{Message: r.answer.message(), FinishReason: r.finish()}}
	if r.fail != "nousage" {
		r.envelope.Usage = wireUsage(r.usage)
	}
	body := encode(r.envelope)
	if r.fail == "cut" {
		r.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		writeJSON(r.w, http.StatusOK, body[:len(body)/2])
		r.cut()
	}
	writeJSON(r.w, http.StatusOK, body)
	return nil
}

// stream sends it token by token.
func (r *reply) stream(withUsage bool) error {
	r.w.Header().Set("Content-Type", contentType(true))
	r.envelope.Object = "chat.completion.chunk"
	withUsage = withUsage && r.fail != "nousage"
	if withUsage {
		r.envelope.Usage = json.RawMessage("null") // in every chunk but the last
	}
	if err := r.chunk(r.answer.opening(), nil); err != nil {
		return err
	}
	var open *int // the call that texts belong to
	for _, p := range r.answer.pieces[:r.answer.sent] {
		if err := r.spend(p.cost); err != nil {
			return err
		}
		d := delta{Content: p.text}
		switch {
		case p.call != nil:
			open = p.call.Index
			d = delta{ToolCalls: []toolCall{*p.call}}
		case open != nil:
			d = delta{ToolCalls: []toolCall{{Index: open, Function: functionCall{Arguments: p.text}}}}
		}
		if p.call == nil && p.text == "" {
			continue
		}
		if err := r.chunk(d, nil); err != nil {
			return err
		}
	}
	switch r.fail {
	case "cut":
		r.cut()
	case "stall":
		return r.stall()
	}
	if err := r.chunk(delta{}, r.finish()); err != nil {
		return err
	}
	if withUsage {
		r.envelope.Choices, r.envelope.Usage = []choice{}, wireUsage(r.usage)
		if err := r.event(encode(r.envelope)); err != nil {
			return err
		}
	}
	return r.event([]byte("[DONE]"))
}

func (r *reply) chunk(delta any, finish *string) error {
	r.envelope.Choices = []choice{{Delta: delta, FinishReason: finish}}
	return r.event(encode(r.envelope))
}

func (r *reply) event(data []byte) error {
	if _, err := fmt.Fprintf(r.w, "data: %s\n\n", data); err != nil {
		return err
	}
	return http.NewResponseController(r.w).Flush()
}

// finish is the finish_reason, or nil if there is to be none.
func (r *reply) finish() *string {
	if r.fail == "nofinish" {
		return nil
	}
	return &r.answer.finish
}

// stall sends nothing more until the client leaves.
func (r *reply) stall() error {
	<-r.ctx.Done()
	return r.ctx.Err()
}

// cut sends what was written, and then breaks the connection.
func (r *reply) cut() {
	_ = http.NewResponseController(r.w).Flush()
	panic(http.ErrAbortHandler)
}

// message is the answer in one piece.
func (a *answer) message() message {
	m := message{Role: "assistant"}
	texts := [][]byte{nil} // the content, and the arguments of each call
	for _, p := range a.pieces {
		if p.call != nil {
			m.ToolCalls = append(m.ToolCalls, toolCall{ID: p.call.ID, Type: p.call.Type, Function: p.call.Function})
			texts = append(texts, nil)
		}
		texts[len(texts)-1] = append(texts[len(texts)-1], p.text...)
	}
	if m.ToolCalls == nil {
		m.Content = ptr(string(texts[0]))
	}
	for i := range m.ToolCalls {
		m.ToolCalls[i].Function.Arguments = string(texts[i+1])
	}
	return m
}

// opening is what a stream begins with.
func (a *answer) opening() message {
	m := message{Role: "assistant", Content: ptr("")}
	if len(a.pieces) > 0 && a.pieces[0].call != nil {
		m.Content = nil
	}
	return m
}
