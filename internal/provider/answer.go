package provider

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// whole is an answer that arrived in one piece: its part, then how it ended.
type whole struct {
	part Part
	err  error
}

// inOnePiece is the answer of which part has been read, and err is wrong; nil:
// nothing is. What an answer tells before it fails is told; if that is nothing the
// call failed.
func inOnePiece(ctx context.Context, status int, begun bool, part Part, err error) (Answer, error) {
	if err == nil {
		return &whole{part, io.EOF}, nil
	}
	err = failed(ctx, status, begun, err)
	if part == (Part{}) {
		return nil, err
	}
	return &whole{part, err}, nil
}

func (w *whole) Next() (Part, error) {
	if p := w.part; p != (Part{}) {
		w.part = Part{}
		return p, nil
	}
	return Part{}, w.err
}

func (w *whole) Close() error {
	w.part = Part{}
	return nil
}

// events are those of a stream, in a provider's own format.
type events interface {
	// next waits for an event and reads it. Its usage is the provider's word so far;
	// end tells that the answer ends with it, as the protocol demands. A failure is a
	// wireError if what came is wrong, a saidFailure if the provider says that it
	// failed, else how the connection ended, io.EOF included; what p tells counts even
	// so.
	next() (p Part, end bool, err error)
	// complete tells that nothing can follow once a finish reason and usage are here,
	// even if the end itself is missing.
	complete() bool
}

// stream is an answer that arrives event by event. It ends as its protocol demands
// or it is broken, by a clean end of its connection too. What has been billed is
// told even if it breaks.
type stream struct {
	ctx      context.Context // the caller's
	callCtx  context.Context // the request's, ended by Close
	cancel   context.CancelFunc
	body     io.Closer
	begun    *atomic.Bool // some of the answer has arrived
	status   int
	events   events
	rest     func() // takes what follows the end, briefly
	text     bool   // some content or refusal was seen
	finished bool   // a finish reason was seen
	report   report
	said     error // the provider's word that the answer has failed
	err      error // how it ended
}

// report is what is known of usage while an answer arrives.
type report struct {
	last    *price.Usage // what was reported last
	outrun  bool         // content came after it
	closing bool         // nothing can have been made after it
}

func (s *stream) Close() error {
	s.cancel()
	return s.body.Close()
}

// Next keeps usage back until the end: it may be repeated, growing.
func (s *stream) Next() (Part, error) {
	for s.err == nil {
		if err := s.callCtx.Err(); err != nil {
			return s.cut(Part{}, err)
		}
		p, end, err := s.events.next()
		s.take(&p, err)
		var said saidFailure
		if s.said == nil && errors.As(err, &said) {
			// Its usage may follow, but is not waited for long.
			s.said, err = said, nil
			time.AfterFunc(briefly, s.cancel)
		} else if s.said != nil {
			p = Part{} // an answer that has failed does not go on
		}
		switch {
		case err != nil:
			return s.cut(p, err)
		case s.said != nil && (end || s.report.known()):
			return s.finish(p, failed(s.ctx, s.status, true, s.said))
		case end && !s.finished:
			s.report.closing = true
			return s.fail(p, errUnfinished)
		case end:
			s.rest()
			return s.finish(p, io.EOF)
		case p != (Part{}):
			return p, nil
		}
	}
	return Part{}, s.err
}

// take notes what an event tells that ends in err, and leaves in p what is for the
// caller now.
func (s *stream) take(p *Part, err error) {
	if s.finished || s.said != nil {
		p.FinishReason = ""
	}
	s.finished = s.finished || p.FinishReason != ""
	content := p.Content != "" || p.Refusal != ""
	if content {
		s.text, s.report.outrun = true, true
	}
	if p.AtLeast != nil {
		s.report = report{last: p.AtLeast, outrun: true}
	}
	if p.Usage != nil {
		// A report beside content may be one of many that grow. One by itself, after
		// content, is the sum where the protocol has it come last; so is one in an event
		// with which the answer breaks.
		s.report = report{last: p.Usage, closing: err != nil || s.events.complete() && s.text && !content}
	}
	p.Usage, p.AtLeast = nil, nil
}

// known reports whether the last report is what is billed for an answer that has
// ended.
func (r report) known() bool { return r.last != nil && !r.outrun }

// finish ends the answer with err, after its last part and its usage. A report counts
// as what was billed if the provider has ended the answer, by its finish reason, by
// saying that it failed or by a clean end of its connection, or if the report itself
// closes it. Any other was made while the model went on.
func (s *stream) finish(last Part, err error) (Part, error) {
	s.err = err
	if r := s.report; r.known() && (s.finished || s.said != nil || r.closing) {
		last.Usage = r.last
	} else {
		last.AtLeast = r.last
	}
	if last != (Part{}) {
		return last, nil
	}
	return Part{}, err
}

// cut ends the answer, after its last part, where it was broken off: by what came, by
// the end of its connection or by that of its context.
func (s *stream) cut(last Part, err error) (Part, error) {
	var wrong wireError
	if s.said == nil && s.finished && s.report.known() && s.events.complete() && !errors.As(err, &wrong) {
		return s.finish(last, io.EOF)
	}
	if errors.Is(err, io.EOF) { // the server has said all that it will
		s.report.closing = true
	}
	return s.fail(last, err)
}

func (s *stream) fail(last Part, err error) (Part, error) {
	begun := s.begun.Load()
	switch {
	case s.said != nil:
		return s.finish(last, failed(s.ctx, s.status, begun, s.said))
	case s.callCtx.Err() != nil && s.ctx.Err() == nil:
		s.err = &Error{Failure: Cancelled, Status: s.status, Begun: begun, Err: wireError("answer closed")}
		return Part{}, s.err
	}
	return s.finish(last, failed(s.ctx, s.status, begun, err))
}

// failureReasons are finish reasons of servers whose answer has failed: vLLM, SGLang,
// Mistral and OpenRouter (error, abort), Zhipu (network_error), DeepSeek
// (insufficient_system_resource), TensorRT-LLM (cancelled, timed_out), Bedrock
// (malformed_…), and what others would say.
var failureReasons = []string{
	"error", "abort", "aborted", "cancelled", "canceled", "failed", "timeout", "timed_out",
	"network_error", "server_error", "internal_error", "insufficient_system_resource",
	"malformed_model_output", "malformed_tool_use",
}

// checkReason refuses a finish reason that means failure, or that is none; "" is none
// yet.
func checkReason(reason string) error {
	switch {
	case slices.Contains(failureReasons, reason):
		return saidFailure{reason}
	case reason != "" && !isReason(reason):
		return errMalformed
	}
	return nil
}

// isCount reports whether n can be a number of tokens: at most what can be added and
// priced without overflow.
func isCount(n int64) bool { return n >= 0 && n <= 1<<40 }

// plausible gives u, or nil if it cannot be true: there is no call without input,
// nor text without output.
func plausible(u price.Usage, text bool) *price.Usage {
	if !u.Valid() || u.Input == 0 || (text && u.Output == 0) {
		return nil
	}
	return &u
}
