package handler

import (
	"io"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// usage is what the caller is held to: what the provider reported, or else what we
// counted.
func (x *exchange) usage() *openai.Usage {
	if u := x.tally.usage; u != nil && !x.tally.overran {
		return openai.UsageOf(*u)
	}
	return openai.UsageOf(price.Usage{Input: x.tally.input, Output: x.tally.output})
}

func (x *exchange) completion(object string) openai.Completion {
	return openai.Completion{
		ID:      "chatcmpl-" + x.admission.Reservation.ID(),
		Object:  object,
		Created: x.admission.Reservation.Start().Unix(),
		Model:   x.call.offer.feature.Name,
		Choices: []openai.Choice{},
	}
}

// stream answers as server-sent events, part by part. Nothing is sent before the
// first text or the finish_reason has come, so that a call that fails without either
// is a plain error, be it with a report of usage.
func (x *exchange) stream(answer provider.Answer) *openai.Error {
	p, err := x.next(answer)
	for err == nil && p.Content == "" && p.Refusal == "" && p.FinishReason == "" {
		p, err = x.next(answer)
	}
	if err != nil && err != io.EOF {
		return x.failed(err)
	}
	x.success("text/event-stream; charset=utf-8")
	x.entry.streaming = true
	ok := x.chunk(&openai.Delta{Role: "assistant", Content: new("")})
	for ok && err == nil {
		if p.Content != "" || p.Refusal != "" {
			if ok = x.chunk(deltaOf(p)); !ok {
				break
			}
			x.tally.delivered = true
		}
		p, err = x.next(answer)
	}
	_ = answer.Close() // before the settle: the last of the call that can go wrong
	switch {
	case !ok:
		x.tally.ending = left
		x.settle()
		return x.notTaken()
	case err != io.EOF:
		return x.failed(err)
	}
	// All content is out. The settle comes before the end of the answer, after
	// which Lambda may freeze the process.
	x.tally.ending = completed
	x.settle()
	last := x.completion(openai.ChunkObject)
	last.Choices, last.Notice = []openai.Choice{{Delta: &openai.Delta{}, FinishReason: &x.finish}}, x.empty()
	x.event(openai.Encode(last))
	if x.call.StreamOptions.IncludeUsage {
		c := x.completion(openai.ChunkObject)
		c.Usage = x.usage()
		x.event(openai.Encode(c))
	}
	x.event([]byte(openai.Done))
	return nil
}

// deltaOf is a part's text as a chunk carries it.
func deltaOf(p provider.Part) *openai.Delta {
	d := &openai.Delta{}
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
	return x.event(openai.Encode(c))
}

// event sends one server-sent event; false means that the caller has left or
// does not read.
func (x *exchange) event(data []byte) bool {
	start := time.Now()
	_, err := x.w.Write(openai.Event(data))
	ok := err == nil && x.rc.Flush() == nil
	x.held += time.Since(start)
	return ok
}
