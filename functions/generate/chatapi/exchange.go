package chatapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// stallMargin is how long after the end of its call a stalled reader may hold
// up the end of the answer.
const stallMargin = 500 * time.Millisecond

// exchange is one provider call and its answer to the caller.
type exchange struct {
	h         *Handler
	w         http.ResponseWriter
	rc        *http.ResponseController
	out       outlet          // of a stream
	ctx       context.Context // the request's
	entry     *entry
	identity  identity
	req       *openai.ChatRequest
	embedding *openai.EmbeddingRequest // instead of req and form
	form      form
	admission *admission.Admission
	meter     admission.Meter // of whoever was asked last
	called    time.Time       // when the provider was
	settled   bool
}

// newExchange is the exchange of an admitted call, which settles it: on every way out.
func (h *Handler) newExchange(w http.ResponseWriter, r *http.Request, e *entry, id identity, a *admission.Admission) *exchange {
	ctx, rc := r.Context(), http.NewResponseController(w)
	_ = rc.SetWriteDeadline(a.Call.End.Add(stallMargin)) // not every writer has one
	return &exchange{h: h, w: w, rc: rc, ctx: ctx, entry: e, identity: id, admission: a, meter: a.Meter(ctx, a.Call.Candidates[0]), called: time.Now()}
}

// exchange calls, settles and answers.
func (h *Handler) exchange(w http.ResponseWriter, r *http.Request, e *entry, id identity, req *openai.ChatRequest, f form, a *admission.Admission) *openai.Error {
	x := h.newExchange(w, r, e, id, a)
	x.req, x.form = req, f
	defer x.settle() // a panic included
	ctx, rc := x.ctx, x.rc
	callCtx, cancel := context.WithDeadline(ctx, a.Call.End)
	defer cancel()
	x.out.w, x.out.rc, x.out.begin, x.out.leave = w, rc, x.begin, cancel
	if req.Stream {
		x.out.keepAlive(h.silence, e.asking)
	}
	answer, err := x.ask(callCtx)
	if err != nil {
		return x.failed(err)
	}
	defer answer.Close()
	if req.Stream {
		return x.stream(answer)
	}
	return x.buffer(answer)
}

// ask calls the feature's model or, if that fails for nothing and without its fault,
// the fallback: at most one of them bills the call.
func (x *exchange) ask(ctx context.Context) (answer provider.Answer, err error) {
	for i, candidate := range x.admission.Call.Candidates {
		if i > 0 {
			asked := openai.ChatRequest{Messages: x.admission.Call.Messages, Tooling: x.admission.Call.Tooling, ResponseFormat: x.req.ResponseFormat}
			if candidate.Model.Provider.Kind.Impossible(&asked) != "" {
				break // it would give another answer than was asked for
			}
			logger(x.ctx).Warn("the fallback is asked", "feature", x.entry.feature, "model", candidate.Model.Name, "error", err)
			x.meter = x.admission.Meter(x.ctx, candidate)
		}
		out := outgoing(x.req, x.admission.Call, candidate.Model)
		out.Trace, out.Answered = x.entry.trace, func(id string) { x.meter.RequestID = id }
		answer, err = x.h.providers[candidate.Model.Provider.Name].Call(ctx, out)
		if err == nil || !mayFallBack(err) || ctx.Err() != nil {
			break
		}
	}
	return answer, err
}

// mayFallBack reports whether another model may be asked after err: nothing was
// billed, and it is not the request that is wrong.
func mayFallBack(err error) bool {
	var e *provider.Error
	if !errors.As(err, &e) || e.Billed() {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return false
	}
	return true
}

// settle settles by what is known of the call, once.
func (x *exchange) settle() {
	if x.settled {
		return
	}
	x.settled = true
	m := &x.meter
	x.entry.calling = time.Since(x.called)
	x.out.quiet()
	if (m.Usage == nil || !m.Finished) && m.Ending != admission.Unbilled && x.gone() {
		m.Ending = admission.Left
	}
	// The rest of the answer comes after the settle, which may take its time.
	_ = x.rc.SetWriteDeadline(x.admission.Call.End.Add(admission.SettleMargin - stallMargin))
	m.Count()
	if m.Overran {
		x.entry.overran = m.Model.Name
	}
	ctx, cancel := detached(x.ctx, admission.SettleTime)
	defer cancel()
	x.entry.asked = &asked{model: m.Model, server: x.h.servers[m.Model.Provider.Name], usage: m.Usage, finish: m.FinishReason, requestID: m.RequestID}
	x.entry.bill = x.admission.Settle(ctx, m.Tally)
	if x.entry.bill.Settled {
		x.h.learn(ctx, x.identity)
	}
}

// gone reports whether the caller is lost. Only the caller cancels a request, or a process
// that must end.
func (x *exchange) gone() bool {
	return errors.Is(x.ctx.Err(), context.Canceled) && !errors.Is(context.Cause(x.ctx), ErrStopped) || x.out.lost()
}

// failed settles a call whose answer failed, and says how.
func (x *exchange) failed(err error) *openai.Error {
	var p *provider.Error
	if !errors.As(err, &p) {
		p = &provider.Error{Failure: provider.Broken}
	}
	if !p.Billed() {
		x.meter.Ending = admission.Unbilled
	}
	x.settle()
	if x.meter.Ending == admission.Left {
		return x.notTaken()
	}
	logger(x.ctx).Warn("provider call failed", "feature", x.entry.feature, "model", x.meter.Model.Name, "error", err)
	if e := x.blamed(p); e != nil {
		return e
	}
	x.entry.unusable = p.Unusable()
	c, what := openai.ProviderError, "The model failed to answer."
	if p.Failure == provider.Timeout {
		c, what = openai.ProviderTimeout, "The model did not answer in time."
	}
	e := openai.Errorf(c, "", "%s %s Try again later.", what, x.entry.taken())
	e.Upstream = p.Status
	return e
}

func (x *exchange) notTaken() *openai.Error {
	return openai.Errorf(openai.CallerLeft, "", "The answer was not taken in time. %s", x.entry.taken())
}

var errUnfinished = &provider.Error{Failure: provider.Broken, Err: errors.New("the answer has no finish_reason")}

// next waits for the next part; io.EOF is the end of a finished answer. What
// breaks after the finish_reason takes nothing from the answer.
func (x *exchange) next(answer provider.Answer) (provider.Part, error) {
	if x.meter.Overran {
		return provider.Part{}, io.EOF // the rest is not read
	}
	p, err := answer.Next()
	switch {
	case err == nil:
		x.meter.Take(&p)
		if !x.admission.Call.Offer.Feature.Reasoning {
			p.Reasoning = ""
		}
		return p, nil
	case x.meter.Finished:
		return p, io.EOF
	case errors.Is(err, io.EOF):
		return p, errUnfinished
	}
	return p, err
}
