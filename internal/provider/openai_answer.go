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

// read takes in one chunk.
func (c *completionChunks) read(data []byte) (Part, error) {
	chunk, err := parseCompletion(data)
	if err != nil {
		return Part{}, err
	}
	if chunk.Choices == nil && !present(chunk.Usage) {
		return Part{}, errMalformed
	}
	var p Part
	if choice := chunk.first(); choice != nil {
		p.Content, p.Refusal = choice.Delta.Content, choice.Delta.Refusal
		if p.FinishReason, err = choice.finish(); err != nil {
			return Part{}, err
		}
	}
	c.text = c.text || p.Content != "" || p.Refusal != ""
	p.Usage = parseUsage(chunk.Usage, c.text)
	return p, nil
}

// parseCompletionWhole reads a chat.completion.
func parseCompletionWhole(body []byte) (Part, error) {
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
		return completion{}, errorInstead(errorCode(data))
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
	if c.FinishReason != "" && !isReason(c.FinishReason) {
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
	return plausible(price.Usage{
		Input:       w.Prompt,
		CachedInput: w.PromptDetails.Cached,
		CacheWrite:  max(w.PromptDetails.CacheWrite, w.PromptDetails.CacheCreation, w.CacheCreation),
		Output:      max(w.Completion, w.Total-w.Prompt),
		Reasoning:   w.CompletionDetails.Reasoning,
	}, text)
}
