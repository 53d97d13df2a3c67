package provider

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// parseConverse reads a buffered answer. Reasoning is not part of the answer; where it is
// redacted, there is nothing to tell of it. Text and usage count whatever else is wrong.
func parseConverse(out *bedrockruntime.ConverseOutput) (p Part, err error) {
	message, ok := out.Output.(*types.ConverseOutputMemberMessage)
	if ok {
		for _, block := range message.Value.Content {
			switch b := block.(type) {
			case *types.ContentBlockMemberText:
				p.Content += b.Value
			case *types.ContentBlockMemberReasoningContent:
				if r, ok := b.Value.(*types.ReasoningContentBlockMemberReasoningText); ok {
					p.Reasoning += aws.ToString(r.Value.Text)
				}
			}
		}
	}
	p.Usage = parseTokenUsage(out.Usage, p.Content != "")
	if !ok {
		return p, errMalformed
	}
	if err = p.finish(string(out.StopReason)); err == nil && p.FinishReason == "" {
		err = errUnfinished
	}
	return p, err
}

// parseTokenUsage gives Bedrock's usage, or nil if there is none that can be true of
// an answer with or without text. inputTokens are those beside what was read from
// and written to a cache; reasoning is within outputTokens.
func parseTokenUsage(u *types.TokenUsage, text bool) *price.Usage {
	if u == nil {
		return nil
	}
	input, read, write := aws.ToInt32(u.InputTokens), aws.ToInt32(u.CacheReadInputTokens), aws.ToInt32(u.CacheWriteInputTokens)
	if input < 0 {
		return nil
	}
	return plausible(price.Usage{
		Input:       int64(input) + int64(read) + int64(write),
		CachedInput: int64(read),
		CacheWrite:  int64(write),
		Output:      int64(aws.ToInt32(u.OutputTokens)),
	}, text)
}

// tokenUsageIn finds the usage in an answer that the SDK cannot read, or nil.
func tokenUsageIn(answer []byte) *price.Usage {
	var members struct{ Usage json.RawMessage }
	var u types.TokenUsage
	if json.Unmarshal(answer, &members) != nil || json.Unmarshal(members.Usage, &u) != nil {
		return nil
	}
	return parseTokenUsage(&u, false)
}

// converseEvents are the events of a stream: messageStart, content blocks,
// messageStop with the stop reason, metadata with the usage. It has no mark of its
// end: both of the last two make it.
type converseEvents struct {
	ctx      context.Context // the request's
	stream   *bedrockruntime.ConverseStreamEventStream
	text     bool // some content was seen
	stopped  bool
	reported bool // a usage that can be true was seen
}

func (c *converseEvents) complete() bool { return true }

func (c *converseEvents) next() (p Part, end bool, err error) {
	select {
	case e, open := <-c.stream.Events():
		if open {
			return c.read(e)
		}
	case <-c.ctx.Done():
		return Part{}, false, c.ctx.Err()
	}
	err = c.stream.Err()
	switch code := exceptionCode(err); {
	case err == nil:
		return Part{}, false, io.EOF
	case code != "":
		return Part{}, false, saidFailure{code}
	}
	return Part{}, false, decodingStream(err)
}

// decodingStream keeps of the failures of a stream's decoder those of the connection:
// the others quote what they met.
func decodingStream(err error) error {
	if errors.Is(safe(err), errConnection) {
		return errMalformed
	}
	return err
}

// read takes in one event. Those that are not known are passed over.
func (c *converseEvents) read(e types.ConverseStreamOutput) (p Part, end bool, err error) {
	switch e := e.(type) {
	case *types.ConverseStreamOutputMemberContentBlockDelta:
		switch d := e.Value.Delta.(type) {
		case *types.ContentBlockDeltaMemberText:
			p.Content = d.Value
		case *types.ContentBlockDeltaMemberReasoningContent:
			if r, ok := d.Value.(*types.ReasoningContentBlockDeltaMemberText); ok {
				p.Reasoning = r.Value
			}
		}
	case *types.ConverseStreamOutputMemberMessageStop:
		err = p.finish(string(e.Value.StopReason))
		c.stopped = c.stopped || p.FinishReason != ""
	case *types.ConverseStreamOutputMemberMetadata:
		p.Usage = parseTokenUsage(e.Value.Usage, c.text)
		c.reported = c.reported || p.Usage != nil
	}
	c.text = c.text || p.Content != ""
	return p, c.stopped && c.reported, err
}

// drain takes what follows the end of a stream, briefly.
func drain(s *bedrockruntime.ConverseStreamEventStream, cancel context.CancelFunc) {
	timer := time.AfterFunc(briefly, cancel)
	defer timer.Stop()
	for range s.Events() {
	}
}
