package provider

import (
	"context"
	"errors"
	"io"
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
	if part.isZero() {
		return nil, err
	}
	return &whole{part, err}, nil
}

func (w *whole) Next() (Part, error) {
	if p := w.part; !p.isZero() {
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

	wait, left time.Duration // how long what may still follow is waited for, and what is left of it; 0: as long as the call may take
	waited     atomic.Bool   // that time is up
}

// report is what is known of usage while an answer arrives.
type report struct {
	last    *price.Usage // what was reported last
	sum     *price.Usage // the largest that was given as all of it so far
	outrun  bool         // content came after last
	closing bool         // nothing can have been made after it
}

func (s *stream) Close() error {
	s.cancel()
	return s.body.Close()
}

// How long is waited for what may follow an answer that has ended: for its usage, and
// for the end of its connection, which is used again only if it is read to its end.
const (
	usageWait = 2 * time.Second
	maxIdle   = 10_000 // events in a row that say nothing
)

// Next keeps usage back until the end: it may be repeated, growing.
func (s *stream) Next() (Part, error) {
	for idle := 0; s.err == nil; idle++ {
		if err := s.callCtx.Err(); err != nil {
			return s.cut(Part{}, err)
		}
		p, end, err := s.await()
		content := s.take(&p, err)
		if said := saidIn(err); said != nil && s.said == nil {
			s.said, err = said, nil // its usage may follow, but is not waited for long
		} else if s.said != nil {
			p = Part{} // an answer that has failed does not go on
		}
		if wait := s.patience(); content || wait != s.wait {
			s.wait, s.left = wait, wait
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
		case !p.isZero():
			return p, nil
		case idle == maxIdle:
			return s.cut(p, errIdle)
		}
	}
	return Part{}, s.err
}

// saidIn is the saidFailure in err, or nil.
func saidIn(err error) error {
	var said saidFailure
	if err != nil && errors.As(err, &said) {
		return said
	}
	return nil
}

// patience is how long is waited for what may follow what is here.
func (s *stream) patience() time.Duration {
	switch {
	case s.said != nil:
		return briefly
	case !s.finished || !s.events.complete():
		return 0
	case s.report.known():
		return briefly
	}
	return usageWait
}

// await waits for the next event, for no longer than what is left of the wait. Only
// reading takes time of it, not what is done with what was read.
func (s *stream) await() (p Part, end bool, err error) {
	if s.left == 0 {
		return s.events.next()
	}
	begun := time.Now()
	timer := time.AfterFunc(s.left, func() {
		s.waited.Store(true)
		s.cancel()
	})
	p, end, err = s.events.next()
	timer.Stop()
	s.left = max(1, s.left-time.Since(begun))
	return p, end, err
}

// take notes what an event tells that ends in err, and leaves in p what is for the
// caller now. It reports whether that has text or thoughts.
func (s *stream) take(p *Part, err error) (content bool) {
	if s.finished || s.said != nil {
		p.FinishReason, p.UnknownReason = "", ""
	}
	s.finished = s.finished || p.FinishReason != ""
	if content = p.says() || p.Reasoning != ""; content {
		s.text, s.report.outrun = s.text || p.says(), true
	}
	if p.AtLeast != nil {
		s.report = report{last: p.AtLeast, sum: s.report.sum, outrun: true}
	}
	if p.Usage != nil {
		// A report beside content may be one of many that grow. One by itself, after
		// content, is the sum where the protocol has it come last; so is one in an event
		// with which the answer breaks.
		sum := larger(s.report.sum, p.Usage)
		s.report = report{last: sum, sum: sum, closing: err != nil || s.events.complete() && s.text && !content}
	}
	p.Usage, p.AtLeast = nil, nil
	return content
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
	if !last.isZero() {
		return last, nil
	}
	return Part{}, err
}

// cut ends the answer, after its last part, where it was broken off: by what came, by
// the end of its connection or by that of its context.
func (s *stream) cut(last Part, err error) (Part, error) {
	var wrong wireError
	over := s.report.known() && !errors.As(err, &wrong) || s.waited.Load() && s.ctx.Err() == nil
	if s.said == nil && s.finished && s.events.complete() && over {
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

// isCount reports whether n can be a number of tokens: at most what can be added and
// priced without overflow.
func isCount[N ~int64](n N) bool { return n >= 0 && n <= 1<<40 }

// plausible gives u, or nil if it cannot be true: there is no call without input,
// nor text without output.
func plausible(u price.Usage, text bool) *price.Usage {
	if !u.Valid() || u.Input == 0 || (text && u.Output == 0) {
		return nil
	}
	return &u
}

// larger is the larger of two reports of one call; nil is none. Counts only grow: what
// is reported later and less is not believed.
func larger(earlier, later *price.Usage) *price.Usage {
	if later == nil || earlier != nil && later.Total() < earlier.Total() {
		return earlier
	}
	return later
}
