package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// reply sends an answer.
type reply struct {
	w        http.ResponseWriter
	ctx      context.Context // the client's
	envelope envelope
	answer   answer
	usage    price.Usage
	fail     string       // as in markers
	spend    func() error // makes one token of the text
}

// whole sends it in one piece.
func (r *reply) whole() error {
	for range r.answer.tokens {
		if err := r.spend(); err != nil {
			return err
		}
	}
	if r.fail == "stall" {
		return r.stall()
	}
	r.envelope.Object = "chat.completion"
	r.envelope.Choices = []choice{{
		Message:      &message{Role: "assistant", Content: ptr(strings.Join(r.answer.tokens, ""))},
		FinishReason: r.finish(),
	}}
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
	if err := r.chunk(message{Role: "assistant", Content: ptr("")}, nil); err != nil {
		return err
	}
	for _, token := range r.answer.tokens[:r.answer.sent] {
		if err := r.spend(); err != nil {
			return err
		}
		if err := r.chunk(message{Content: &token}, nil); err != nil {
			return err
		}
	}
	switch r.fail {
	case "cut":
		r.cut()
	case "stall":
		return r.stall()
	}
	if err := r.chunk(message{}, r.finish()); err != nil {
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

func (r *reply) chunk(delta message, finish *string) error {
	r.envelope.Choices = []choice{{Delta: &delta, FinishReason: finish}}
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
