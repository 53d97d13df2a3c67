package provider

import (
	"encoding/json"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// claudeMessage is a whole message. Its members are read one by one: what is wrong
// with one hides no other.
type claudeMessage struct {
	Type       string          `json:"type"`
	Content    json.RawMessage `json:"content"`
	StopReason json.RawMessage `json:"stop_reason"`
	Usage      json.RawMessage `json:"usage"`
}

// claudeBlock is a piece of content, or of a stream's. Thinking is not part of the
// answer; where it is redacted, there is nothing to tell of it.
type claudeBlock struct {
	Type     string `json:"type"` // text and thinking, or text_delta and thinking_delta
	Text     string `json:"text"`
	Thinking string `json:"thinking"`
}

// tell adds the block to a part. Of another type it is passed over.
func (b claudeBlock) tell(p *Part) {
	switch b.Type {
	case "text", "text_delta":
		p.Content += b.Text
	case "thinking", "thinking_delta":
		p.Reasoning += b.Thinking
	}
}

// parseClaudeMessage reads a buffered answer. Its text and usage count whatever else
// is wrong with it.
func parseClaudeMessage(body []byte) (p Part, err error) {
	var m claudeMessage
	if json.Unmarshal(body, &m) != nil {
		return Part{}, errMalformed
	}
	var blocks []claudeBlock
	wrong := present(m.Content) && json.Unmarshal(m.Content, &blocks) != nil
	for _, b := range blocks {
		b.tell(&p)
	}
	if usage, given := readClaudeUsage(m.Usage); given {
		p.Usage = usage.parse(p.Content != "")
	}
	switch {
	case m.Type == "error":
		return p, saidFailure{errorCode(body)}
	case m.Type != "message", wrong:
		return p, errMalformed
	}
	var stopReason string
	if present(m.StopReason) && json.Unmarshal(m.StopReason, &stopReason) != nil {
		return p, errMalformed
	}
	if err = p.finish(stopReason); err == nil && p.FinishReason == "" {
		err = errUnfinished
	}
	return p, err
}

// claudeEvents are the events of a stream: message_start, content blocks,
// message_delta with the stop reason, message_stop. Only the last is an end.
type claudeEvents struct {
	events *eventReader
	text   bool // some content was seen
	usage  claudeUsage
}

func (c *claudeEvents) complete() bool { return false }

func (c *claudeEvents) next() (p Part, end bool, err error) {
	data, err := c.events.next()
	if err != nil {
		return Part{}, false, err
	}
	return c.read(data)
}

// read takes in one event. Types that are not known are passed over, as the API
// asks of its clients. The usage of an event counts whatever else is wrong with it.
func (c *claudeEvents) read(data []byte) (p Part, end bool, err error) {
	var e struct {
		Type    string `json:"type"`
		Message struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"message"` // message_start
		ContentBlock claudeBlock `json:"content_block"` // content_block_start
		Delta        struct {
			claudeBlock
			StopReason string `json:"stop_reason"` // message_delta
		} `json:"delta"`
		Usage json.RawMessage `json:"usage"` // message_delta
	}
	// What is of another kind than it should be is left out, the rest is read.
	wrong := json.Unmarshal(data, &e) != nil
	switch e.Type {
	case "message_start":
		// Its output was counted before there was any.
		c.usage, _ = readClaudeUsage(e.Message.Usage)
		p.AtLeast = c.usage.parse(false)
	case "content_block_start":
		e.ContentBlock.tell(&p)
	case "content_block_delta":
		e.Delta.tell(&p)
	case "message_delta":
		if later, given := readClaudeUsage(e.Usage); given {
			c.usage.add(later)
			p.Usage = c.usage.parse(c.text)
		}
		if !wrong {
			err = p.finish(e.Delta.StopReason)
		}
	case "message_stop":
		end = true
	case "error":
		err = saidFailure{errorCode(data)}
	}
	if wrong || e.Type == "" {
		return p, false, errMalformed
	}
	c.text = c.text || p.Content != ""
	return p, end, err
}

// claudeUsage is usage as Anthropic counts it: input beside what was read from and
// written to a cache, thinking within output.
type claudeUsage struct {
	Input      int64 `json:"input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	Output     int64 `json:"output_tokens"`
	Details    struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// readClaudeUsage reads a usage object, if one is given. One that is wrong counts
// less than nothing, which cannot be true.
func readClaudeUsage(raw json.RawMessage) (u claudeUsage, given bool) {
	if !present(raw) {
		return claudeUsage{}, false
	}
	if json.Unmarshal(raw, &u) != nil {
		return claudeUsage{Input: -1}, true
	}
	return u, true
}

// add takes in what message_delta says. Counts are cumulative: those of the output
// replace message_start's, which were made before there was any. Those of the input
// are left out by some servers in one of the two.
func (u *claudeUsage) add(later claudeUsage) {
	u.Input = grown(u.Input, later.Input)
	u.CacheRead = grown(u.CacheRead, later.CacheRead)
	u.CacheWrite = grown(u.CacheWrite, later.CacheWrite)
	u.Output, u.Details = later.Output, later.Details
}

// grown is the larger of two counts, or negative if one is.
func grown(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a, b)
}

// parse gives the usage of an answer with or without text, or nil if there is none
// that can be true.
func (u claudeUsage) parse(text bool) *price.Usage {
	for _, n := range [...]int64{u.Input, u.CacheRead, u.CacheWrite} {
		if !isCount(n) {
			return nil
		}
	}
	return plausible(price.Usage{
		Input:       u.Input + u.CacheRead + u.CacheWrite,
		CachedInput: u.CacheRead,
		CacheWrite:  u.CacheWrite,
		Output:      u.Output,
		Reasoning:   u.Details.Thinking,
	}, text)
}
