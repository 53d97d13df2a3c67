package handler

import (
	"io"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// completion is a chat completion, or a chunk of one.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
	// Notice tells a person why the answer has no text. It is a member of our own, which
	// clients of OpenAI's pass on or pass over, in either form of an answer: a header
	// would come before a stream's reason is known.
	Notice string `json:"notice,omitempty"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"`
	Delta        *delta   `json:"delta,omitempty"`
	Logprobs     *string  `json:"logprobs"` // always null
	FinishReason *string  `json:"finish_reason"`
}

type message struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	Refusal *string `json:"refusal"`
}

type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Refusal *string `json:"refusal,omitempty"`
}

type usage struct {
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	Total         int64 `json:"total_tokens"`
	PromptDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// usage is what the caller is held to: what the provider reported, or else what we
// counted.
func (x *exchange) usage() *usage {
	u := x.tally.usage
	if u == nil || x.tally.overran {
		u = &price.Usage{Input: x.tally.input, Output: x.tally.output}
	}
	shown := usage{Prompt: u.Input, Completion: u.Output, Total: u.Total()}
	shown.PromptDetails.Cached = u.CachedInput
	shown.CompletionDetails.Reasoning = u.Reasoning
	return &shown
}

func (x *exchange) completion(object string) completion {
	return completion{
		ID:      "chatcmpl-" + x.admission.Reservation.ID(),
		Object:  object,
		Created: x.admission.Reservation.Start().Unix(),
		Model:   x.call.offer.feature.Name,
		Choices: []choice{},
	}
}

// stream answers as server-sent events, part by part. Nothing is sent before the
// first text or the finish_reason has come, so that a call that fails without either
// is a plain error, be it with a report of usage.
func (x *exchange) stream(answer provider.Answer) *apiError {
	p, err := x.next(answer)
	for err == nil && p.Content == "" && p.Refusal == "" && p.FinishReason == "" {
		p, err = x.next(answer)
	}
	if err != nil && err != io.EOF {
		return x.failed(err)
	}
	x.success("text/event-stream; charset=utf-8")
	x.entry.streaming = true
	ok := x.chunk(&delta{Role: "assistant", Content: new("")})
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
	last := x.completion("chat.completion.chunk")
	last.Choices, last.Notice = []choice{{Delta: &delta{}, FinishReason: &x.finish}}, x.empty()
	x.event(encode(last))
	if x.call.IncludeUsage {
		c := x.completion("chat.completion.chunk")
		c.Usage = x.usage()
		x.event(encode(c))
	}
	x.event([]byte("[DONE]"))
	return nil
}

// deltaOf is a part's text as a chunk carries it.
func deltaOf(p provider.Part) *delta {
	d := &delta{}
	if p.Content != "" {
		d.Content = &p.Content
	}
	if p.Refusal != "" {
		d.Refusal = &p.Refusal
	}
	return d
}

func (x *exchange) chunk(d *delta) bool {
	c := x.completion("chat.completion.chunk")
	c.Choices = append(c.Choices, choice{Delta: d})
	return x.event(encode(c))
}

// event sends one server-sent event; false means that the caller has left or
// does not read.
func (x *exchange) event(data []byte) bool {
	start := time.Now()
	_, err := x.w.Write(append(append([]byte("data: "), data...), "\n\n"...))
	ok := err == nil && x.rc.Flush() == nil
	x.held += time.Since(start)
	return ok
}
