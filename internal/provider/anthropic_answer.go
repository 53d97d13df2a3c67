package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// claudeMessage is a whole message. What is not needed is not here. What is may be of any
// kind: a member of another kind than it should be hides no other.
type claudeMessage struct {
	Type       any             `json:"type"`
	Content    json.RawMessage `json:"content"`
	StopReason any             `json:"stop_reason"`
	Usage      *claudeUsage    `json:"usage"`
	Error      json.RawMessage `json:"error"`
}

// tell adds the content of m to a part: blocks, or a text.
func (m *claudeMessage) tell(p *Part, calls *calls) {
	var blocks []claudeBlock
	if isOtherKind(json.Unmarshal(m.Content, &blocks)) && len(blocks) == 0 {
		var said any
		_ = json.Unmarshal(m.Content, &said)
		tell(said, &p.Content, p)
	}
	for i, b := range blocks {
		b.tell(p, calls, "in the list "+strconv.Itoa(i))
	}
}

// isOtherKind reports whether all that was wrong with JSON is that something in it is of
// another kind than asked for, so that all else was read.
func isOtherKind(err error) bool {
	var kind *json.UnmarshalTypeError
	return errors.As(err, &kind)
}

// claudeBlock is a piece of content, or of a stream's. Thinking is not part of the
// answer; where it is redacted, there is nothing to tell of it.
type claudeBlock struct {
	Type     any `json:"type"` // text, thinking and tool_use, or text_delta, thinking_delta and input_json_delta
	Text     any `json:"text"`
	Thinking any `json:"thinking"`
	// Of a call. Its arguments come as a value, in a stream as the pieces of its text.
	ID          any             `json:"id"`
	Name        any             `json:"name"`
	Input       json.RawMessage `json:"input"`
	PartialJSON json.RawMessage `json:"partial_json"`
}

// tell adds the block at an index to a part. Of another type it is passed over; a call of
// a tool that the provider runs itself is noted, so that its arguments are no other's.
func (b *claudeBlock) tell(p *Part, calls *calls, at string) {
	kind, _ := b.Type.(string)
	switch kind {
	case "text", "text_delta":
		tell(b.Text, &p.Content, p)
	case "thinking", "thinking_delta":
		tell(b.Thinking, &p.Reasoning, p)
	case "tool_use", "input_json_delta":
		said := piece{at: at, id: wordOf(b.ID), name: wordOf(b.Name)}
		said.arguments, _ = argumentsOf(b.Input)
		if b.PartialJSON != nil {
			said.arguments, _ = argumentsOf(b.PartialJSON)
		}
		calls.add(p, said)
	case "":
		if b.Type == nil {
			tell(b.Text, &p.Content, p)
		}
	default:
		if strings.HasSuffix(kind, "_tool_use") {
			calls.add(p, piece{at: at, foreign: true})
		}
	}
}

// parseClaudeMessage reads a buffered answer. Its text and usage count whatever else
// is wrong with it.
func parseClaudeMessage(body []byte) (p Part, err error) {
	var m claudeMessage
	if err := json.Unmarshal(body, &m); err != nil && !isOtherKind(err) {
		return Part{}, errMalformed
	}
	var calls calls
	m.tell(&p, &calls)
	p.Usage = m.Usage.parse(p.says())
	switch {
	case m.Type == "error", saysError(m.Error):
		return p, saidFailure{errorCode(body)}
	case m.Type != "message" && !p.says():
		return p, errMalformed
	}
	switch err = p.finish(m.StopReason); {
	case err != nil || p.FinishReason != "":
	case p.says(): // whose end is that of its JSON
		p.FinishReason, p.UnknownReason = stopped, "none"
	default:
		err = errUnfinished
	}
	calls.finish(&p)
	return p, err
}

// claudeEvents are the events of a stream: message_start, content blocks,
// message_delta with the stop reason, message_stop. Its proper end is the last, but
// nothing follows the stop reason that is part of the answer, other than usage.
type claudeEvents struct {
	events   *eventReader
	text     bool // some content was seen
	calls    calls
	finished bool // a stop reason was
	usage    claudeUsage
}

// complete is so only once there is a stop reason: usage before it was counted while the
// model went on.
func (c *claudeEvents) complete() bool { return c.finished }

func (c *claudeEvents) next() (p Part, end bool, err error) {
	data, err := c.events.next()
	if err != nil {
		return Part{}, false, err
	}
	switch data = bytes.TrimSpace(data); {
	case bytes.HasPrefix(data, []byte("[DONE]")): // OpenAI's end, of servers between
		return Part{}, true, nil
	case isKeepAlive(data):
		return Part{}, false, nil
	}
	p, end, err = c.read(data)
	if err == nil && c.events.failing {
		err = saidFailure{codeOf(data)}
	}
	return p, end, err
}

// read takes in one event. Types that are not known are passed over, as the API
// asks of its clients, but for their usage. The usage of an event counts whatever else is
// wrong with it.
func (c *claudeEvents) read(data []byte) (p Part, end bool, err error) {
	var e struct {
		claudeMessage               // message_delta has usage here; a whole message may come as one event
		Message       claudeMessage `json:"message"`       // message_start
		Index         any           `json:"index"`         // of the block
		ContentBlock  claudeBlock   `json:"content_block"` // content_block_start
		Delta         struct {
			claudeBlock
			StopReason any          `json:"stop_reason"` // message_delta
			Usage      *claudeUsage `json:"usage"`
		} `json:"delta"`
	}
	if err := json.Unmarshal(data, &e); err != nil && !isOtherKind(err) {
		return Part{}, false, errMalformed
	}
	reason := e.Delta.StopReason
	switch e.Type {
	case "content_block_start", "content_block_delta", "content_block_stop", "message_delta", nil: // told by what there is
		e.ContentBlock.tell(&p, &c.calls, wordOf(e.Index))
		e.Delta.tell(&p, &c.calls, wordOf(e.Index))
	case "message":
		reason = e.StopReason
		e.tell(&p, &c.calls)
	case "message_start":
		reason = nil
		e.Message.tell(&p, &c.calls)
	case "message_stop":
		end = true
	case "error":
		err = saidFailure{errorCode(data)}
	default:
		reason = nil
	}
	if err == nil && saysError(e.Error) {
		err = saidFailure{codeOf(e.Error)}
	}
	c.text = c.text || p.says()
	if e.Type == "message_start" {
		// Its output was counted before there was any.
		c.usage = claudeUsage{}
		c.usage.add(e.Message.Usage)
		p.AtLeast = c.usage.parse(false)
	}
	for _, later := range [...]*claudeUsage{e.Usage, e.Delta.Usage} {
		if later != nil {
			c.usage.add(later)
			p.Usage = larger(p.Usage, c.usage.parse(c.text))
		}
	}
	if err == nil {
		err = p.finish(reason)
		c.calls.finish(&p)
		c.finished = c.finished || p.FinishReason != ""
	}
	return p, end, err
}

// claudeUsage is usage as Anthropic counts it: input beside what was read from and
// written to a cache, thinking within output.
type claudeUsage struct {
	Input         count `json:"input_tokens"`
	CacheRead     count `json:"cache_read_input_tokens"`
	CacheWrite    count `json:"cache_creation_input_tokens"`
	CacheCreation struct {
		FiveMinutes count `json:"ephemeral_5m_input_tokens"`
		Hour        count `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"` // what CacheWrite consists of
	Output  count `json:"output_tokens"`
	Details struct {
		Thinking count `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// add takes in a later report. Counts are cumulative: those of the output replace the
// earlier ones, which were made before there was any. Those of the input are left out by
// some servers in one of the two.
func (u *claudeUsage) add(later *claudeUsage) {
	if later == nil {
		return
	}
	u.Input = grown(u.Input, later.Input)
	u.CacheRead = grown(u.CacheRead, later.CacheRead)
	u.CacheWrite = grown(u.CacheWrite, later.CacheWrite)
	if later.CacheCreation.FiveMinutes != 0 || later.CacheCreation.Hour != 0 {
		u.CacheCreation = later.CacheCreation
	}
	u.Output, u.Details = later.Output, later.Details
}

// grown is the larger of two counts, or negative if one is.
func grown(a, b count) count {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a, b)
}

// parse gives the usage of an answer with or without text, or nil if there is none
// that can be true.
func (u *claudeUsage) parse(text bool) *price.Usage {
	if u == nil {
		return nil
	}
	write := u.CacheWrite
	if parts := u.CacheCreation; isCount(parts.FiveMinutes) && isCount(parts.Hour) {
		write = grown(write, parts.FiveMinutes+parts.Hour)
	}
	for _, n := range [...]count{u.Input, u.CacheRead, write, u.Output} {
		if !isCount(n) {
			return nil
		}
	}
	return plausible(price.Usage{
		Input:       int64(u.Input + u.CacheRead + write),
		CachedInput: int64(u.CacheRead),
		CacheWrite:  int64(write),
		Output:      int64(u.Output),
		Reasoning:   most(u.Details.Thinking),
	}, text)
}
