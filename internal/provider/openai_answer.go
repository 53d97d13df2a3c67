package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// whole is an answer that arrived in one piece.
type whole struct {
	part Part
	done bool
}

func (w *whole) Next() (Part, error) {
	if w.done {
		return Part{}, io.EOF
	}
	w.done = true
	return w.part, nil
}

func (w *whole) Close() error {
	w.done = true
	return nil
}

// stream is an answer that arrives as server-sent events.
//
// Its proper end is [DONE] after a finish_reason. Compatible servers may leave
// [DONE] out, so an answer whose finish_reason and usage have arrived is complete
// too, however its connection ends: nothing could follow. Any other end breaks
// it, a clean one included.
type stream struct {
	ctx      context.Context // the caller's
	callCtx  context.Context // the request's, ended by Close
	cancel   context.CancelFunc
	body     io.ReadCloser
	status   int
	events   *eventReader
	text     bool         // some content or refusal was seen
	finished bool         // a finish_reason was seen
	usage    *price.Usage // the last one that can cover all the text seen
	err      error        // how it ended
}

func newStream(ctx, callCtx context.Context, cancel context.CancelFunc, resp *http.Response) *stream {
	return &stream{
		ctx: ctx, callCtx: callCtx, cancel: cancel,
		body: resp.Body, status: resp.StatusCode,
		events: newEventReader(resp.Body, maxEvent, maxStream),
	}
}

func (s *stream) Close() error {
	s.cancel()
	return s.body.Close()
}

func (s *stream) Next() (Part, error) {
	for s.err == nil {
		if err := s.callCtx.Err(); err != nil {
			return s.cut(err)
		}
		data, err := s.events.next()
		if err != nil {
			return s.cut(err)
		}
		if string(bytes.TrimSpace(data)) == "[DONE]" {
			if !s.finished {
				return s.fail(errUnfinished)
			}
			readBriefly(s.body, s.cancel)
			return s.complete()
		}
		part, err := s.read(data)
		if err != nil {
			return s.fail(err)
		}
		if part != (Part{}) {
			return part, nil
		}
	}
	return Part{}, s.err
}

// read takes in one chunk. Usage is kept back until the end: some servers
// repeat it, growing, in every chunk.
func (s *stream) read(data []byte) (Part, error) {
	c, err := parseCompletion(data)
	if err != nil {
		return Part{}, err
	}
	if c.Choices == nil && !present(c.Usage) {
		return Part{}, errMalformed
	}
	var part Part
	if choice := c.first(); choice != nil {
		part.Content, part.Refusal = choice.Delta.Content, choice.Delta.Refusal
		if !s.finished {
			part.FinishReason, err = choice.finish()
			s.finished = part.FinishReason != ""
		}
	}
	if part.Content != "" || part.Refusal != "" {
		s.text, s.usage = true, nil
	}
	if u := parseUsage(c.Usage, s.text); u != nil {
		s.usage = u
	}
	return part, err
}

func (s *stream) complete() (Part, error) {
	s.err = io.EOF
	if s.usage == nil {
		return Part{}, io.EOF
	}
	return Part{Usage: s.usage}, nil
}

// cut ends the answer where its connection or its context ended.
func (s *stream) cut(err error) (Part, error) {
	if s.finished && s.usage != nil {
		return s.complete()
	}
	return s.fail(err)
}

func (s *stream) fail(err error) (Part, error) {
	e := failed(s.ctx, s.status, err)
	if s.callCtx.Err() != nil && s.ctx.Err() == nil {
		e = &Error{Failure: Cancelled, Status: s.status, Err: wireError("answer closed")}
	}
	s.err = e
	return Part{}, s.err
}

// parseWhole reads a chat.completion.
func parseWhole(body []byte) (Part, error) {
	c, err := parseCompletion(body)
	if err != nil {
		return Part{}, err
	}
	choice := c.first()
	if choice == nil || choice.Message == nil {
		return Part{}, errMalformed
	}
	part := Part{Content: choice.Message.Content, Refusal: choice.Message.Refusal}
	if part.FinishReason, err = choice.finish(); err != nil {
		return Part{}, err
	}
	if part.FinishReason == "" {
		return Part{}, errUnfinished
	}
	part.Usage = parseUsage(c.Usage, part.Content != "" || part.Refusal != "")
	return part, nil
}

// completion is a chat.completion or a chat.completion.chunk.
type completion struct {
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message"` // of a whole answer
	Delta        message  `json:"delta"`   // of a chunk
	FinishReason string   `json:"finish_reason"`
}

type message struct {
	Content string `json:"content"`
	Refusal string `json:"refusal"`
}

func parseCompletion(data []byte) (completion, error) {
	var c completion
	if json.Unmarshal(data, &c) != nil {
		return completion{}, errMalformed
	}
	if present(c.Error) {
		if code := errorCode(data); code != "" {
			return completion{}, wireError("error instead of an answer, code " + code)
		}
		return completion{}, wireError("error instead of an answer")
	}
	return c, nil
}

// first is the choice with index 0, or nil. No other is ever asked for.
func (c completion) first() *choice {
	for i := range c.Choices {
		if c.Choices[i].Index == 0 {
			return &c.Choices[i]
		}
	}
	return nil
}

// finish is the finish reason, "" if there is none yet.
func (c choice) finish() (string, error) {
	if c.FinishReason != "" && !isWord(c.FinishReason, 32, "abcdefghijklmnopqrstuvwxyz_") {
		return "", errMalformed
	}
	return c.FinishReason, nil
}

// parseUsage reads a usage object, or gives nil if there is none that can be
// true of an answer with or without text. Compatible servers differ in two ways
// that cost money:
//   - xAI and Gemini leave reasoning out of completion_tokens but not out of
//     total_tokens, so the larger output of the two counts.
//   - cache writes are cache_write_tokens (OpenAI since GPT-5.6, OpenRouter) or
//     cache_creation_input_tokens, beside the other details (Qwen) or at the top
//     (LiteLLM).
func parseUsage(raw json.RawMessage, text bool) *price.Usage {
	if !present(raw) {
		return nil
	}
	var w struct {
		Prompt        int64 `json:"prompt_tokens"`
		Completion    int64 `json:"completion_tokens"`
		Total         int64 `json:"total_tokens"`
		CacheCreation int64 `json:"cache_creation_input_tokens"`
		PromptDetails struct {
			Cached        int64 `json:"cached_tokens"`
			CacheWrite    int64 `json:"cache_write_tokens"`
			CacheCreation int64 `json:"cache_creation_input_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if json.Unmarshal(raw, &w) != nil || w.Completion < 0 {
		return nil
	}
	u := price.Usage{
		Input:       w.Prompt,
		CachedInput: w.PromptDetails.Cached,
		CacheWrite:  max(w.PromptDetails.CacheWrite, w.PromptDetails.CacheCreation, w.CacheCreation),
		Output:      max(w.Completion, w.Total-w.Prompt),
		Reasoning:   w.CompletionDetails.Reasoning,
	}
	// There is no call without input, nor text without output.
	if !u.Valid() || u.Input == 0 || (text && u.Output == 0) {
		return nil
	}
	return &u
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
