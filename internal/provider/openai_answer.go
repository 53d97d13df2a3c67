package provider

import (
	"bytes"
	"encoding/json"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// completionChunks are the events of a stream. Its proper end is [DONE] after a
// finish_reason. Compatible servers may leave [DONE] out, so an answer whose
// finish_reason and usage have arrived is complete too, however its connection
// ends.
type completionChunks struct {
	events *eventReader
	text   bool // some content or refusal was seen
}

func (c *completionChunks) complete() bool { return true }

func (c *completionChunks) next() (p Part, end bool, err error) {
	data, err := c.events.next()
	if err != nil {
		return Part{}, false, err
	}
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		return Part{}, true, nil
	}
	p, err = c.read(data)
	return p, false, err
}

// read takes in one chunk. Its usage counts whatever else is wrong with it.
func (c *completionChunks) read(data []byte) (p Part, err error) {
	chunk, err := parseCompletion(data)
	if err != nil {
		return Part{}, err
	}
	choice, err := chunk.first()
	if choice != nil {
		p.Content, p.Refusal = choice.Delta.Content, choice.Delta.Refusal
	}
	c.text = c.text || p.Content != "" || p.Refusal != ""
	p.Usage = parseUsage(chunk.Usage, c.text)
	switch {
	case saysError(chunk.Error):
		return p, saidFailure{codeOf(chunk.Error)}
	case err != nil:
		return p, err
	case choice != nil:
		p.FinishReason, err = choice.finish()
	case !present(chunk.Choices) && !present(chunk.Usage):
		return p, errMalformed
	}
	return p, err
}

// parseCompletionWhole reads a chat.completion. Its text and usage count whatever
// else is wrong with it.
func parseCompletionWhole(body []byte) (p Part, err error) {
	c, err := parseCompletion(body)
	if err != nil {
		return Part{}, err
	}
	choice, err := c.first()
	if choice != nil && choice.Message != nil {
		p.Content, p.Refusal = choice.Message.Content, choice.Message.Refusal
	}
	p.Usage = parseUsage(c.Usage, p.Content != "" || p.Refusal != "")
	switch {
	case saysError(c.Error):
		return p, saidFailure{codeOf(c.Error)}
	case err != nil:
		return p, err
	case choice == nil || choice.Message == nil:
		return p, errMalformed
	}
	if p.FinishReason, err = choice.finish(); err == nil && p.FinishReason == "" {
		err = errUnfinished
	}
	return p, err
}

// completion is a chat.completion or a chat.completion.chunk. Its members are read
// one by one: what is wrong with one hides no other.
type completion struct {
	Choices json.RawMessage `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int             `json:"index"`
	Message      *message        `json:"message"` // of a whole answer
	Delta        message         `json:"delta"`   // of a chunk
	FinishReason string          `json:"finish_reason"`
	Error        json.RawMessage `json:"error"` // OpenRouter's, of an answer that failed on the way
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
	return c, nil
}

// first is the choice with index 0, or nil. No other is ever asked for.
func (c completion) first() (*choice, error) {
	if !present(c.Choices) {
		return nil, nil
	}
	var choices []choice
	if json.Unmarshal(c.Choices, &choices) != nil {
		return nil, errMalformed
	}
	for i := range choices {
		if choices[i].Index == 0 {
			return &choices[i], nil
		}
	}
	return nil, nil
}

// finish is the finish reason, "" if there is none yet.
func (c choice) finish() (string, error) {
	if saysError(c.Error) {
		return "", saidFailure{codeOf(c.Error)}
	}
	if err := checkReason(c.FinishReason); err != nil {
		return "", err
	}
	return c.FinishReason, nil
}

// saysError reports whether an error member tells of an error: some servers send an
// empty one with every answer.
func saysError(raw json.RawMessage) bool {
	switch string(bytes.Join(bytes.Fields(raw), nil)) {
	case "", "null", "false", `""`, "{}", "[]":
		return false
	}
	return true
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
	if json.Unmarshal(raw, &w) != nil || !isCount(w.Prompt) || !isCount(w.Completion) || !isCount(w.Total) {
		return nil
	}
	return plausible(price.Usage{
		Input:       w.Prompt,
		CachedInput: w.PromptDetails.Cached,
		CacheWrite:  max(w.PromptDetails.CacheWrite, w.PromptDetails.CacheCreation, w.CacheCreation),
		Output:      max(w.Completion, w.Total-w.Prompt),
		Reasoning:   w.CompletionDetails.Reasoning,
	}, text)
}
