package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// complete answers a chat.
func (u *Upstream) complete(w http.ResponseWriter, r *http.Request) {
	req, body, problem := parse(w, r)
	if problem != nil {
		refuse(w, problem)
		return
	}
	prompt := countPrompt(u.tokenizer, req)
	marks := readMarkers(req.lastUserText())
	digest := sha256.Sum256(body)
	id := hex.EncodeToString(digest[:12])
	answer := u.compose(req, prompt, marks, id)

	call := req.logged(prompt)
	u.log.add(call, body)
	x := exchange{u: u, w: w, ctx: r.Context(), call: call, marks: marks}
	usage := price.Usage{Input: int64(prompt), CachedInput: int64(min(marks.cached, prompt))}
	output := price.Usage{Reasoning: int64(answer.reasoning), Output: answer.output()}
	if !x.begin(contentType(req.Stream), usage, output) {
		return
	}
	usage.Reasoning, usage.Output = output.Reasoning, output.Output
	if marks.report > 0 {
		usage.Output = int64(marks.report)
	}
	reply := reply{exchange: x, answer: answer, usage: usage, envelope: envelope{
		ID:      "chatcmpl-" + id,
		Created: u.options.Now().Unix(),
		Model:   req.Model,
	}}
	// Each fails only because the client has left.
	if x.spend(answer.reasoning-len(answer.thoughts), aThought) != nil {
		return
	}
	if req.Stream {
		_ = reply.stream(req.StreamOptions != nil && req.StreamOptions.IncludeUsage)
	} else {
		_ = reply.whole()
	}
}

// What a token of an answer is billed as.
var (
	aThought = price.Usage{Output: 1, Reasoning: 1}
	aWord    = price.Usage{Output: 1}
)

// reply sends an answer.
type reply struct {
	exchange
	envelope envelope
	answer   answer
	usage    price.Usage
}

// whole sends it in one piece.
func (r *reply) whole() error {
	if err := r.spend(len(r.answer.thoughts), aThought); err != nil {
		return err
	}
	for _, p := range r.answer.pieces {
		if err := r.spend(p.cost, aWord); err != nil {
			return err
		}
	}
	r.envelope.Object = "chat.completion"
	r.envelope.Choices = []choice{{Message: r.answer.message(), FinishReason: r.finish()}}
	if r.marks.fail != "nousage" {
		r.envelope.Usage = wireUsage(r.usage)
	}
	return r.deliver(encode(r.envelope))
}

// stream sends it token by token.
func (r *reply) stream(withUsage bool) error {
	r.w.Header().Set("Content-Type", contentType(true))
	r.envelope.Object = "chat.completion.chunk"
	withUsage = withUsage && r.marks.fail != "nousage"
	if withUsage {
		r.envelope.Usage = json.RawMessage("null") // in every chunk but the last
	}
	if err := r.chunk(r.answer.opening(), nil); err != nil {
		return err
	}
	for _, text := range r.answer.thoughts {
		if err := r.spend(1, aThought); err != nil {
			return err
		}
		if err := r.chunk(delta{Reasoning: text}, nil); err != nil {
			return err
		}
	}
	var open *int // the call that texts belong to
	for _, p := range r.answer.pieces[:r.answer.sent] {
		if err := r.spend(p.cost, aWord); err != nil {
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
	switch r.marks.fail {
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
	if r.marks.fail == "nofinish" {
		return nil
	}
	return &r.answer.finish
}

// message is the answer in one piece.
func (a *answer) message() message {
	m := message{Role: "assistant", Reasoning: strings.Join(a.thoughts, "")}
	texts := [][]byte{nil} // the content, and the arguments of each call
	for _, p := range a.pieces {
		if p.call != nil {
			m.ToolCalls = append(m.ToolCalls, toolCall{ID: p.call.ID, Type: p.call.Type, Function: p.call.Function})
			texts = append(texts, nil)
		}
		texts[len(texts)-1] = append(texts[len(texts)-1], p.text...)
	}
	if m.ToolCalls == nil || len(texts[0]) > 0 {
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
