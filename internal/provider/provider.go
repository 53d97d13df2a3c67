// Package provider calls model providers.
//
// Guarantees: one Call is at most one request on the wire, never a retry. The
// output cap is always sent as the provider's own parameter, usage is always
// asked for, the size of what comes back is bounded, and a context that ends
// ends the call. What a provider answers is checked, not trusted: a failure counts
// as free only where the call cannot have been billed, and usage that has arrived is
// told whatever else went wrong. Errors carry no secret and no prompt or answer text.
//
// What a model thinks is never part of its text. It is told apart, as Part.Reasoning,
// for those who show it, and passed over by all others.
package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/trace"
)

// Request is a call as admission allowed it. Nil pointers are not sent.
type Request struct {
	Model           string // the provider's own id of the model
	Messages        []openai.Message
	MaxOutputTokens int    // always sent, at least 1
	MaxTokensField  string // OpenAI: max_tokens or max_completion_tokens, as the model wants it
	Stream          bool
	openai.Sampling
	openai.Tooling
	ResponseFormat  json.RawMessage // valid JSON, or nil
	ReasoningEffort string          // one of openai.Efforts; "": not said
	// Extra is an object of fields that are sent beside the client's own, and names none of
	// those; nil: none. To Bedrock they are additionalModelRequestFields.
	Extra json.RawMessage
	// Trace is the caller's, which the provider is told of.
	Trace trace.Context
	// Answered is told the provider's own id of the request, a plain word, as soon as the
	// head of an answer is here, of an error too; never, if it has none. Nil: nobody is.
	Answered func(id string)
}

// Provider makes calls.
type Provider interface {
	// Call sends one request and returns its open answer. A failure before
	// anything of the answer arrived is an *Error. The caller closes the answer.
	Call(ctx context.Context, req Request) (Answer, error)
}

// Answer is an answer on its way.
type Answer interface {
	// Next waits for the next part. io.EOF means that the answer ended as its
	// protocol demands; any other failure is an *Error. After a failure or
	// io.EOF it keeps returning that.
	Next() (Part, error)
	// Close gives up what is still to come. It is safe to call more than once.
	Close() error
}

// Part is a piece of an answer; any of its fields may be set.
type Part struct {
	Content string
	Refusal string
	// ToolCalls are calls that the model asks for, or pieces of some. Of each the first piece
	// has its ID and its Name, and no other has; they are numbered in the order of the first.
	// At most maxCalls.
	ToolCalls []openai.ToolCall
	// Reasoning is what the model thought on the way to its text: no part of the
	// answer, and by itself nothing that a caller has got.
	Reasoning string
	// FinishReason is in OpenAI's words: stop, length, tool_calls or content_filter. A reason that
	// means failure is an *Error instead.
	FinishReason string
	// UnknownReason is the provider's own word for a reason that nobody knows, which is
	// taken for stop: a plain word; "other" if it is more than that, "none" if an answer
	// in one piece has none.
	UnknownReason string
	// Usage is what the provider reported: valid, at most once, in or after the last
	// content, and before the *Error of an answer that then fails.
	Usage *price.Usage
	// AtLeast is the last report of an answer that ends without Usage, since content
	// came after the report: valid, at most once, at the end. No less was billed.
	AtLeast *price.Usage
}

// isZero reports whether p has nothing.
func (p *Part) isZero() bool {
	return !p.says() && p.Reasoning == "" && p.FinishReason == "" && p.UnknownReason == "" && p.Usage == nil && p.AtLeast == nil
}

// Failure says in which way a call failed.
type Failure string

const (
	Unreachable Failure = "unreachable" // the request was never sent: nothing was billed
	Refused     Failure = "refused"     // an error status, or not sent because of what it asks: nothing was billed
	Failed      Failure = "failed"      // an error status behind which the model may have worked: may be billed
	Timeout     Failure = "timeout"     // no complete answer within the deadline: may be billed
	Broken      Failure = "broken"      // cut, malformed, too large, or an answer that says that it failed: may be billed
	Cancelled   Failure = "cancelled"   // the caller's context was cancelled: may be billed
)

// Error is a failed call. Its text is safe for logs and, apart from that, not
// meant for callers of the API.
type Error struct {
	Failure Failure
	Status  int    // the provider's HTTP status if it sent one, else 0
	Code    string // the provider's own word for what went wrong, a plain word; "" if it gave none
	// Fault is what is wrong with the request itself, where a 400, 413 or 422 says so in a
	// way that is known; "" elsewhere. Param is the field at fault as the provider calls it,
	// a plain word, which need not be one that the caller has set; "" if it names none.
	Fault Fault
	Param string
	Begun bool  // some of the answer had arrived: a byte of its body is enough
	Err   error // the cause; may be nil
}

func (e *Error) Error() string {
	s := "provider " + string(e.Failure)
	if e.Status != 0 {
		s = fmt.Sprintf("%s (status %d)", s, e.Status)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Unusable reports whether nobody can call this model as it is configured: its key, its
// name or its address is wrong, or the key may not use it.
func (e *Error) Unusable() bool {
	var dns *net.DNSError
	switch {
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden, e.Status == http.StatusNotFound:
		return true
	case errors.As(e.Err, &dns):
		return dns.IsNotFound
	}
	return slices.Contains(unusable, e.Code)
}

// unusable are words of providers that say so with another status, such as 400.
var unusable = []string{"invalid_api_key", "API_KEY_INVALID", "model_not_found", "invalid_model", "unknown_model", "DeploymentNotFound"}

// Billed reports whether the provider may have charged for the call.
func (e *Error) Billed() bool { return e.Failure != Unreachable && e.Failure != Refused }
