package chatapi

import (
	"errors"
	"io"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// usage is what the caller is held to: what the provider reported, or else what we
// counted.
func (x *exchange) usage() *openai.Usage {
	if u := x.meter.Usage; u != nil && !x.meter.Overran {
		return openai.UsageOf(*u)
	}
	return openai.UsageOf(price.Usage{Input: x.meter.Input, Output: x.meter.Output})
}

func (x *exchange) completion(object string) openai.Completion {
	return openai.Completion{
		ID:      "chatcmpl-" + x.admission.ID(),
		Object:  object,
		Created: x.admission.Start().Unix(),
		Model:   x.entry.feature,
		Choices: []openai.Choice{},
	}
}

// begin sets the headers of a stream. From then on a failure is an event.
func (x *exchange) begin() {
	x.success("text/event-stream; charset=utf-8")
	x.entry.streaming = true
}

// success sets the headers of an admitted call.
func (x *exchange) success(contentType string) {
	h, call := x.w.Header(), x.admission.Call
	h.Set("Content-Type", contentType)
	x.h.limitHeaders(h, call.Offer, x.admission.Left(), nil)
	callHeaders(h, call)
}

// buffer answers in one piece.
func (x *exchange) buffer(answer provider.Answer) *openai.Error {
	var content, refusal, reasoning strings.Builder
	for {
		p, err := x.next(answer)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return x.failed(err)
		}
		content.WriteString(p.Content)
		refusal.WriteString(p.Refusal)
		reasoning.WriteString(p.Reasoning)
	}
	_ = answer.Close() // before the settle: the last of the call that can go wrong
	x.meter.Ending = admission.Completed
	x.settle()
	x.success("application/json")
	m := openai.Reply{Role: "assistant", Content: new(content.String()), Reasoning: reasoning.String()}
	if refusal.Len() > 0 {
		m.Refusal = new(refusal.String())
	}
	c := x.completion(openai.WholeObject)
	c.Choices = []openai.Choice{{Message: &m, FinishReason: &x.meter.FinishReason}}
	c.Usage, c.Notice = x.usage(), x.empty()
	_, _ = x.w.Write(openai.Encode(c)) // a caller that has gone is charged all the same
	return nil
}

// stream answers as server-sent events, part by part. Unless that takes long, nothing
// is sent before the first text or the finish_reason has come, so that a call that fails
// without either is a plain error, be it with a report of usage.
func (x *exchange) stream(answer provider.Answer) *openai.Error {
	p, err := x.next(answer)
	for err == nil && !shows(p) && p.FinishReason == "" {
		p, err = x.next(answer)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return x.failed(err)
	}
	ok := x.chunk(&openai.Delta{Role: "assistant", Content: new("")})
	for ok && err == nil {
		if shows(p) {
			if ok = x.chunk(deltaOf(p)); !ok {
				break
			}
			x.meter.Delivered = x.meter.Text // reasoning by itself is nothing that the caller has got
		}
		p, err = x.next(answer)
	}
	_ = answer.Close() // before the settle: the last of the call that can go wrong
	switch {
	case !ok:
		x.meter.Ending = admission.Left
		x.settle()
		return x.notTaken()
	case !errors.Is(err, io.EOF):
		return x.failed(err)
	}
	// All content is out. The settle comes before the end of the answer, after
	// which Lambda may freeze the process.
	x.meter.Ending = admission.Completed
	x.settle()
	last := x.completion(openai.ChunkObject)
	last.Choices, last.Notice = []openai.Choice{{Delta: &openai.Delta{}, FinishReason: &x.meter.FinishReason}}, x.empty()
	if x.req.StreamOptions.IncludeUsage {
		x.out.event(openai.Encode(last))
		last = x.completion(openai.ChunkObject)
		last.Usage = x.usage()
	}
	last.Limits = views(x.admission.Left())
	x.out.event(openai.Encode(last))
	x.out.event([]byte(openai.Done))
	return nil
}

// shows reports whether a part has something for the caller to read.
func shows(p provider.Part) bool { return p.Content != "" || p.Refusal != "" || p.Reasoning != "" }

func views(left []limits.Seen) []limits.View {
	list := make([]limits.View, len(left))
	for i, l := range left {
		list[i] = l.View()
	}
	return list
}

// deltaOf is a part's text as a chunk carries it.
func deltaOf(p provider.Part) *openai.Delta {
	d := &openai.Delta{Reasoning: p.Reasoning}
	if p.Content != "" {
		d.Content = &p.Content
	}
	if p.Refusal != "" {
		d.Refusal = &p.Refusal
	}
	return d
}

func (x *exchange) chunk(d *openai.Delta) bool {
	c := x.completion(openai.ChunkObject)
	c.Choices = append(c.Choices, openai.Choice{Delta: d})
	return x.out.event(openai.Encode(c))
}
