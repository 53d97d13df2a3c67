package handler

import (
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// capped is a request within its tier's and feature's caps.
type capped struct {
	*openai.ChatRequest
	messages  []openai.Message // as they go upstream, the feature's system prompt first
	input     int64            // tokens, system prompt and framing included: exact, or an upper bound
	maxOutput int64            // tokens
	dropped   int              // characters that were cut off an anonymous caller's input
}

// capRequest holds a request against the caps. An anonymous caller's input is
// cut to fit; anybody else's is refused if it does not.
func capRequest(req *openai.ChatRequest, o *offer) (*capped, *openai.Error) {
	tier, feature := o.tier, o.feature
	if int64(len(req.Messages)) > tier.MaxMessages {
		return nil, openai.Errorf(openai.InputTooLong, "messages", "There are %d messages; at most %d are allowed.", len(req.Messages), tier.MaxMessages)
	}
	if i := req.FirstInstruction(); i >= 0 && !feature.AllowSystem {
		path := fmt.Sprintf("messages[%d].role", i)
		return nil, openai.Errorf(openai.InvalidValue, path, "%s must be user or assistant: %s has its own instructions.", path, feature.Name)
	}
	if req.ResponseFormat != nil && !feature.AllowResponseFormat {
		return nil, openai.Errorf(openai.UnsupportedParameter, "response_format", "response_format is supported by %s only as text.", feature.Name)
	}

	c := &capped{ChatRequest: req, messages: req.Messages}
	c.maxOutput = o.maxOutput()
	if asked := req.MaxOutput(); asked > 0 {
		c.maxOutput = min(c.maxOutput, asked)
	}

	// A schema is shown to the model in a form that we do not know: its bytes are
	// an upper bound, with room for what introduces it.
	base := o.baseInput
	if n := len(req.ResponseFormat); n > 0 {
		base += int64(n) + formatFraming
	}
	if tier.Name == policy.Anonymous {
		c.cut(o, base)
	}
	c.input = base
	for _, m := range c.messages {
		c.input += o.count(m)
	}
	chars := int64(0)
	for _, m := range c.messages {
		chars += int64(utf8.RuneCountInString(m.Content))
	}
	switch {
	case tier.MaxInputChars > 0 && chars > tier.MaxInputChars:
		return nil, openai.Errorf(openai.InputTooLong, "messages", "The messages have %d characters; at most %d are allowed.", chars, tier.MaxInputChars)
	case c.input > tier.MaxInputTokens:
		return nil, openai.Errorf(openai.InputTooLong, "messages", "The input has %d tokens; at most %d are allowed.", c.input, tier.MaxInputTokens)
	case len(c.messages) == 0:
		return nil, openai.Errorf(openai.InputTooLong, "messages", "Nothing of the input fits.")
	}
	if feature.System != "" {
		c.messages = append([]openai.Message{{Role: "system", Content: feature.System}}, c.messages...)
	}
	return c, nil
}

// formatFraming is for what introduces a response format, in tokens.
const formatFraming = 64

// cut keeps the newest messages, whole while they fit both the characters and
// the tokens of the tier; the first that does not loses its end, and older ones
// go.
func (c *capped) cut(o *offer, base int64) {
	chars := o.tier.MaxInputChars
	if chars == 0 {
		chars = 1 << 40 // no bound of its own: a body has fewer
	}
	budget := o.tier.MaxInputTokens - base
	kept := len(c.messages)
	for kept > 0 {
		m := &c.messages[kept-1]
		n := int64(utf8.RuneCountInString(m.Content))
		tokens := int64(0)
		if n <= chars { // counting what must be cut anyway would cost for nothing
			tokens = o.count(*m)
		}
		if n > chars || tokens > budget {
			head := o.head(firstRunes(m.Content, chars), budget)
			if head != "" {
				c.dropped += int(n) - utf8.RuneCountInString(head)
				m.Content = head
				kept--
			}
			break
		}
		chars, budget = chars-n, budget-tokens
		kept--
	}
	for _, m := range c.messages[:kept] {
		c.dropped += utf8.RuneCountInString(m.Content)
	}
	c.messages = c.messages[kept:]
}

// headers tell what the caps have done to the request.
func (c *capped) headers(h http.Header) {
	h.Set("X-Max-Output-Tokens", strconv.FormatInt(c.maxOutput, 10))
	if c.dropped > 0 {
		h.Set("X-Input-Truncated", strconv.Itoa(c.dropped))
	}
}

// firstRunes is the beginning of s, at most n code points long.
func firstRunes(s string, n int64) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
