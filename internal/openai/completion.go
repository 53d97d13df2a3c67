package openai

import "github.com/tokenfuse/tokenfuse/internal/price"

// Completion is a chat completion, or a chunk of one: its Object tells which.
type Completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`  // WholeObject or ChunkObject
	Created int64    `json:"created"` // seconds since 1970
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
	// Notice tells a person why the answer has no text. It is a member of our own, which
	// clients of OpenAI's pass on or pass over, in either form of an answer: a header
	// would come before a stream's reason is known.
	Notice string `json:"notice,omitempty"`
	// Limits are what the answer has left of the caller's limits, each as GET /v1/limits
	// shows it. The last chunk of a stream has them: its headers were sent before.
	Limits any `json:"limits,omitempty"`
}

// What a Completion is.
const (
	WholeObject = "chat.completion"
	ChunkObject = "chat.completion.chunk"
)

// Choice is an answer, as a whole (Message) or by a chunk (Delta).
type Choice struct {
	Index        int     `json:"index"`
	Message      *Reply  `json:"message,omitempty"`
	Delta        *Delta  `json:"delta,omitempty"`
	Logprobs     *string `json:"logprobs"`      // always null
	FinishReason *string `json:"finish_reason"` // nil until the answer ends
}

// Reply is the message of an answer.
type Reply struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	Refusal *string `json:"refusal"`
	// ToolCalls are whole.
	ToolCalls ToolCalls `json:"tool_calls,omitempty"`
	// Reasoning is no field of OpenAI's, but the one in which most servers tell it.
	Reasoning string `json:"reasoning_content,omitempty"`
}

// Delta is what a chunk adds to the message of an answer.
type Delta struct {
	Role      string          `json:"role,omitempty"`
	Content   *string         `json:"content,omitempty"`
	Refusal   *string         `json:"refusal,omitempty"`
	ToolCalls []ToolCallDelta `json:"tool_calls,omitempty"`
	Reasoning string          `json:"reasoning_content,omitempty"` // as in Reply
}

// Usage counts the tokens of a call.
type Usage struct {
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

// UsageOf is u in the form of the wire.
func UsageOf(u price.Usage) *Usage {
	shown := &Usage{Prompt: u.Input, Completion: u.Output, Total: u.Total()}
	shown.PromptDetails.Cached = u.CachedInput
	shown.CompletionDetails.Reasoning = u.Reasoning
	return shown
}

// Done is the data of the event that ends a stream.
const Done = "[DONE]"

// Event is data as a server-sent event. data must have no line break, as JSON has none.
func Event(data []byte) []byte {
	return append(append([]byte("data: "), data...), "\n\n"...)
}
