package chatapi

import (
	"errors"
	"io"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// usage is what the caller is held to: what the provider reported, or else what we
// counted.
func (x *exchange) usage() price.Usage {
	if u := x.meter.Usage; u != nil && !x.meter.Overran {
		return *u
	}
	return price.Usage{Input: x.meter.Input, Output: x.meter.Output}
}

// begin sets the headers of a stream. From then on a failure is an event.
func (x *exchange) begin() {
	x.success("text/event-stream; charset=utf-8")
	x.entry.streaming = x.form
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
	var all reply
	for {
		p, err := x.next(answer)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return x.failed(err)
		}
		all.add(p)
	}
	_ = answer.Close() // before the settle: the last of the call that can go wrong
	x.meter.Ending = admission.Completed
	x.settle()
	x.success("application/json")
	_, _ = x.w.Write(openai.Encode(x.form.whole(x, &all))) // a caller that has gone is charged all the same
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
	ok := x.form.open(x)
	for ok && err == nil {
		if shows(p) {
			if ok = x.form.part(x, p); !ok {
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
	x.form.end(x)
	return nil
}

// shows reports whether a part has something for the caller.
func shows(p provider.Part) bool {
	return p.Content != "" || p.Refusal != "" || len(p.ToolCalls) > 0 || p.Reasoning != ""
}

func views(left []limits.Seen) []limits.View {
	list := make([]limits.View, len(left))
	for i, l := range left {
		list[i] = l.View()
	}
	return list
}
