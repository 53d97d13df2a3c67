package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// converseBlock is a piece of content, or of a stream's. Reasoning is not part of the
// answer; where it is redacted, there is nothing to tell of it. Members may be of any
// kind, as in claudeBlock.
type converseBlock struct {
	Text      any `json:"text"`
	Reasoning struct {
		Text          any `json:"text"` // of a stream
		ReasoningText struct {
			Text any `json:"text"`
		} `json:"reasoningText"`
	} `json:"reasoningContent"`
	ToolUse *struct {
		ID    any             `json:"toolUseId"`
		Name  any             `json:"name"`
		Type  any             `json:"type"`  // server_tool_use of a tool that the provider runs itself
		Input json.RawMessage `json:"input"` // a value, or some of its text in a stream
	} `json:"toolUse"`
}

// tell adds the block at an index to a part.
func (b *converseBlock) tell(p *Part, calls *calls, at string) {
	tell(b.Text, &p.Content, p)
	tell(b.Reasoning.Text, &p.Reasoning, p)
	tell(b.Reasoning.ReasoningText.Text, &p.Reasoning, p)
	if use := b.ToolUse; use != nil {
		said := piece{at: at, id: wordOf(use.ID), name: wordOf(use.Name)}
		if use.Type == "server_tool_use" {
			said = piece{at: at, foreign: true}
		}
		said.arguments, _ = argumentsOf(use.Input)
		calls.add(p, said)
	}
}

// parseConverse reads a buffered answer. Text and usage count whatever else is wrong.
func parseConverse(body []byte) (p Part, err error) {
	var m struct {
		Output struct {
			Message *struct {
				Content []converseBlock `json:"content"`
			} `json:"message"`
		} `json:"output"`
		StopReason any            `json:"stopReason"`
		Usage      *converseUsage `json:"usage"`
	}
	if err := json.Unmarshal(body, &m); err != nil && !isOtherKind(err) {
		return Part{}, errMalformed
	}
	var calls calls
	if m.Output.Message != nil {
		for i, b := range m.Output.Message.Content {
			b.tell(&p, &calls, "in the list "+strconv.Itoa(i))
		}
	}
	p.Usage = m.Usage.parse(p.says())
	if m.Output.Message == nil {
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

// converseUsage is usage as Bedrock counts it: input beside what was read from and written
// to a cache, reasoning within output.
type converseUsage struct {
	Input      count `json:"inputTokens"`
	Output     count `json:"outputTokens"`
	CacheRead  count `json:"cacheReadInputTokens"`
	CacheWrite count `json:"cacheWriteInputTokens"`
}

// parse gives the usage of an answer with or without text, or nil if there is none that
// can be true.
func (u *converseUsage) parse(text bool) *price.Usage {
	if u == nil {
		return nil
	}
	claude := claudeUsage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}
	return claude.parse(text)
}

// converseEvents are the events of a stream: messageStart, content blocks,
// messageStop with the stop reason, metadata with the usage. It has no mark of its
// end: both of the last two make it.
//
// They are decoded here and not by the SDK, which takes a single member of another kind
// for the end of the answer.
type converseEvents struct {
	frames   *eventReader // of whose bytes alone use is made
	decoder  *eventstream.Decoder
	payload  []byte
	text     bool // some content was seen
	calls    calls
	stopped  bool
	reported bool // a usage that can be true was seen
}

func (c *converseEvents) complete() bool { return true }

func (c *converseEvents) next() (p Part, end bool, err error) {
	m, err := c.decoder.Decode(c.frames.r, c.payload[:0])
	if err != nil {
		if c.frames.limited.N <= 0 {
			err = errTooLarge
		}
		return Part{}, false, decodingStream(err)
	}
	c.payload = m.Payload
	header := func(name string) string {
		if v := m.Headers.Get(name); v != nil {
			return v.String()
		}
		return ""
	}
	switch header(":message-type") {
	case "exception":
		return Part{}, false, saidFailure{exceptionName(header(":exception-type"))}
	case "error":
		return Part{}, false, saidFailure{exceptionName(header(":error-code"))}
	}
	return c.read(header(":event-type"), m.Payload)
}

// exceptionName is the name of an exception as AWS's documentation writes it, "" if it is
// no plain word.
func exceptionName(s string) string {
	if !isCode(s) {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// decodingStream keeps of the failures of a stream's decoder those of the connection:
// the others quote what they met.
func decodingStream(err error) error {
	if !errors.Is(err, io.EOF) && errors.Is(safe(err), errConnection) {
		return errMalformed
	}
	return err
}

// read takes in one event. Those that are not known are passed over.
func (c *converseEvents) read(event string, payload []byte) (p Part, end bool, err error) {
	var e struct {
		Index      any            `json:"contentBlockIndex"`
		Delta      converseBlock  `json:"delta"`
		Start      converseBlock  `json:"start"`
		StopReason any            `json:"stopReason"`
		Usage      *converseUsage `json:"usage"`
	}
	if len(bytes.TrimSpace(payload)) > 0 {
		if err := json.Unmarshal(payload, &e); err != nil && !isOtherKind(err) {
			return Part{}, false, errMalformed
		}
	}
	switch event {
	case "contentBlockStart", "contentBlockDelta":
		e.Start.tell(&p, &c.calls, wordOf(e.Index))
		e.Delta.tell(&p, &c.calls, wordOf(e.Index))
	case "messageStop":
		err = p.finish(e.StopReason)
		c.calls.finish(&p)
		c.stopped = c.stopped || p.FinishReason != ""
	}
	c.text = c.text || p.says()
	p.Usage = e.Usage.parse(c.text)
	c.reported = c.reported || p.Usage != nil
	return p, c.stopped && c.reported, err
}
