package provider

import (
	"context"
	"errors"
	"io"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// whole is an answer that arrived in one piece.
type whole struct {
	part Part
	done bool
}

func (w *whole) Next() (Part, error) {
	if w.done {
		return Part{}, io.EOF
	}
	w.done = true
	return w.part, nil
}

func (w *whole) Close() error {
	w.done = true
	return nil
}

// events are those of a stream, in a provider's own format.
type events interface {
	// next waits for an event and reads it. Its usage is the provider's word so far;
	// end tells that the answer ends with it, as the protocol demands. A failure is a
	// wireError if what came is wrong, else how the connection ended, io.EOF included.
	next() (p Part, end bool, err error)
	// complete tells that nothing can follow once a finish reason and usage are here,
	// even if the end itself is missing.
	complete() bool
}

// stream is an answer that arrives event by event. It ends as its protocol demands
// or it is broken, by a clean end of its connection too. What has been billed is
// told even if it breaks after that.
type stream struct {
	ctx      context.Context // the caller's
	callCtx  context.Context // the request's, ended by Close
	cancel   context.CancelFunc
	body     io.Closer
	status   int
	events   events
	rest     func()       // takes what follows the end, briefly
	finished bool         // a finish reason was seen
	usage    *price.Usage // the last one, unless text came after it
	err      error        // how it ended
}

func (s *stream) Close() error {
	s.cancel()
	return s.body.Close()
}

// Next keeps usage back until the end: it may be repeated, growing.
func (s *stream) Next() (Part, error) {
	for s.err == nil {
		if err := s.callCtx.Err(); err != nil {
			return s.cut(err)
		}
		p, end, err := s.events.next()
		if err != nil {
			return s.cut(err)
		}
		if s.finished {
			p.FinishReason = ""
		}
		s.finished = s.finished || p.FinishReason != ""
		if p.Content != "" || p.Refusal != "" {
			s.usage = nil
		}
		if p.Usage != nil {
			s.usage, p.Usage = p.Usage, nil
		}
		if end {
			if !s.finished {
				return s.fail(errUnfinished)
			}
			s.rest()
			return s.finish(p, io.EOF)
		}
		if p != (Part{}) {
			return p, nil
		}
	}
	return Part{}, s.err
}

// finish ends the answer with err, after its last part and its usage.
func (s *stream) finish(last Part, err error) (Part, error) {
	s.err = err
	if s.finished {
		last.Usage = s.usage
	}
	if last != (Part{}) {
		return last, nil
	}
	return Part{}, err
}

// cut ends the answer where it was broken off: by what came, by the end of its
// connection or by that of its context.
func (s *stream) cut(err error) (Part, error) {
	var wrong wireError
	if s.finished && s.usage != nil && s.events.complete() && !errors.As(err, &wrong) {
		return s.finish(Part{}, io.EOF)
	}
	return s.fail(err)
}

func (s *stream) fail(err error) (Part, error) {
	if s.callCtx.Err() != nil && s.ctx.Err() == nil {
		return s.finish(Part{}, &Error{Failure: Cancelled, Status: s.status, Err: wireError("answer closed")})
	}
	return s.finish(Part{}, failed(s.ctx, s.status, err))
}

// plausible gives u, or nil if it cannot be true: there is no call without input,
// nor text without output.
func plausible(u price.Usage, text bool) *price.Usage {
	if !u.Valid() || u.Input == 0 || (text && u.Output == 0) {
		return nil
	}
	return &u
}
