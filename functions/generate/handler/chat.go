package handler

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// settleMargin lies between the end of a call and the end of the invocation:
// time to settle, and a second for the rest.
const settleMargin = settleTime + time.Second

// stallMargin is how long after the end of its call a stalled reader may hold
// up the end of the answer.
const stallMargin = 500 * time.Millisecond

// call is an admitted request on its way.
type call struct {
	*capped
	identity identity
	offer    *offer
	worst    amount
}

// chat answers POST /v1/chat/completions.
func (h *Handler) chat(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	body, apiErr := openai.ReadBody(r)
	if apiErr != nil {
		return apiErr
	}
	id, apiErr := h.identify(r)
	if apiErr != nil {
		return apiErr
	}
	e.identify(id)
	req, apiErr := openai.ParseChat(body)
	if apiErr != nil {
		return apiErr
	}
	o, apiErr := h.offer(req.Model, id)
	if apiErr != nil {
		return apiErr
	}
	e.feature = o.feature.Name
	capped, apiErr := capRequest(req, o)
	if apiErr != nil {
		return apiErr
	}
	c := &call{capped: capped, identity: id, offer: o}
	model := o.candidates[0].model
	asked := *c.ChatRequest
	asked.Messages = c.messages
	switch name := model.Provider.Kind.Unsupported(&asked); name {
	case "":
	case "messages":
		return openai.Errorf(openai.InvalidValue, name, "The messages have no text.")
	default:
		return openai.Errorf(openai.UnsupportedParameter, name, "%s is not supported by %s.", name, o.feature.Name)
	}
	c.worst = o.worstCase(capped)
	return h.admitAndCall(w, r, e, c)
}

// offer finds what the model field names.
func (h *Handler) offer(name string, id identity) (*offer, *openai.Error) {
	if o := h.offers[audience{id.tier.Name, id.kind}][name]; o != nil {
		return o, nil
	}
	if h.Policy.Features[name] != nil {
		return nil, openai.Errorf(openai.FeatureNotAllowed, "model", "%s is not open to %s callers.", name, id.tier.Name)
	}
	return nil, openai.Errorf(openai.ModelNotFound, "model", "There is no model %s. See /v1/models.", openai.Clip(name))
}

// admitAndCall reserves, calls, answers and settles.
func (h *Handler) admitAndCall(w http.ResponseWriter, r *http.Request, e *entry, c *call) *openai.Error {
	ctx := r.Context()
	end, apiErr := h.callEnd(ctx, c)
	if apiErr != nil {
		return apiErr
	}
	deadline := h.Now().Add(time.Until(end) + settleMargin) // buckets go by the handler's clock
	asked := time.Now()
	a, apiErr := h.admit(r, c, deadline)
	e.asking = time.Since(asked)
	if apiErr != nil {
		if apiErr.Denied != nil {
			c.headers(w.Header())
			if apiErr.Denied.Limit != bucket.InFlight {
				limitHeaders(w.Header(), c.offer, a.Decision, apiErr)
			}
		}
		h.learnDenied(ctx, c.identity, apiErr)
		return apiErr
	}
	e.admitted, e.reserved = true, c.worst

	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(end.Add(stallMargin)) // not every writer has one

	x := &exchange{h: h, w: w, rc: rc, ctx: ctx, end: end, entry: e, call: c, asked: c.offer.candidates[0], admission: a, tally: tally{input: c.input}}
	e.offer = c.offer
	defer x.settle() // on every way out, a panic included
	callCtx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	x.called = time.Now()
	answer, err := x.ask(callCtx)
	if err != nil {
		return x.failed(err)
	}
	defer answer.Close()
	if c.Stream {
		return x.stream(answer)
	}
	return x.buffer(answer)
}

// callEnd is when the provider call ends at the latest, so that settling is
// over before the invocation is.
func (h *Handler) callEnd(ctx context.Context, c *call) (time.Time, *openai.Error) {
	now := time.Now()                                            // contexts go by the real clock
	end := now.Add(c.offer.candidates[0].model.Provider.Timeout) // of the whole call, a fallback included
	if hard, ok := ctx.Deadline(); ok && hard.Add(-settleMargin).Before(end) {
		end = hard.Add(-settleMargin)
	}
	if !end.After(now) {
		return end, openai.Errorf(openai.ProviderTimeout, "", "There is not enough time left for this call.")
	}
	return end, nil
}

// ask calls the feature's model or, if that fails for nothing and without its fault,
// the fallback: at most one of them bills the call.
func (x *exchange) ask(ctx context.Context) (answer provider.Answer, err error) {
	for i, candidate := range x.call.offer.candidates {
		if i > 0 {
			logger(x.ctx).Warn("the fallback is asked", "feature", x.call.offer.feature.Name, "model", candidate.model.Name, "error", err)
		}
		x.asked = candidate
		answer, err = candidate.provider.Call(ctx, x.call.request(candidate.model))
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

// request is what goes upstream to a model. It is streamed wherever the model can,
// also for a caller who wants one piece: so what was made is known if time runs out.
func (c *call) request(m *policy.Model) provider.Request {
	return provider.Request{
		Model:           m.ID,
		Messages:        c.messages,
		MaxTokensField:  m.MaxTokensField,
		MaxOutputTokens: int(c.maxOutput),
		Stream:          m.Stream,
		Sampling:        c.Sampling,
		ResponseFormat:  c.ResponseFormat,
	}
}

// exchange is one provider call and its answer to the caller.
type exchange struct {
	h         *Handler
	w         http.ResponseWriter
	rc        *http.ResponseController
	ctx       context.Context // the request's
	end       time.Time       // of the provider call
	held      time.Duration   // how long the caller has kept us from writing
	entry     *entry
	call      *call
	asked     candidate // whoever was asked last
	admission admission
	tally     tally
	seen      *tokens.Running // the text of the answer so far, shown or not
	kept      int             // bytes of it that are shown, where the output cap was ignored
	finish    string          // the finish_reason, if it has arrived
	settled   bool
	called    time.Time // when the provider was
}

// settle settles by the tally, once.
func (x *exchange) settle() {
	if x.settled {
		return
	}
	x.settled = true
	x.entry.calling = time.Since(x.called)
	if (x.tally.usage == nil || !x.tally.finished) && x.tally.ending != unbilled && x.gone() {
		x.tally.ending = left
	}
	// The rest of the answer comes after the settle, which may take its time.
	_ = x.rc.SetWriteDeadline(x.end.Add(settleMargin - stallMargin))
	x.count()
	x.entry.settled = x.h.settle(x.ctx, x.admission, x.call, x.asked.model, x.tally)
}

// gone reports whether the caller has left, or has stalled for so long that the
// answer may have failed for that. Only the caller cancels a request.
func (x *exchange) gone() bool {
	return errors.Is(x.ctx.Err(), context.Canceled) || x.held > stallMargin
}

// failed settles a call whose answer failed, and says how.
func (x *exchange) failed(err error) *openai.Error {
	var p *provider.Error
	if !errors.As(err, &p) {
		p = &provider.Error{Failure: provider.Broken}
	}
	if !p.Billed() {
		x.tally.ending = unbilled
	}
	x.settle()
	if x.tally.ending == left {
		return x.notTaken()
	}
	logger(x.ctx).Warn("provider call failed", "feature", x.call.offer.feature.Name, "model", x.asked.model.Name, "error", err)
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

// take adds a part of the answer to what is known, and leaves of it what is shown.
func (x *exchange) take(p *provider.Part) {
	if p.FinishReason != "" {
		x.finish, x.tally.finished = p.FinishReason, true
	}
	if x.believes(p.Usage) {
		x.tally.usage = p.Usage
	}
	if x.believes(p.AtLeast) {
		x.tally.least = p.AtLeast
	}
	x.see(p)
}

// believes reports whether u is there and the model can have it.
func (x *exchange) believes(u *price.Usage) bool {
	if u == nil {
		return false
	}
	if m := x.asked.model; u.Total() > m.Context {
		logger(x.ctx).Error("the provider reported more usage than the model's context holds: the report is not believed",
			"model", m.Name, "reported_tokens", u.Total(), "context", m.Context)
		return false
	}
	return true
}

var errUnfinished = &provider.Error{Failure: provider.Broken, Err: errors.New("the answer has no finish_reason")}

// next waits for the next part; io.EOF is the end of a finished answer. What
// breaks after the finish_reason takes nothing from the answer.
func (x *exchange) next(answer provider.Answer) (provider.Part, error) {
	if x.tally.overran {
		return provider.Part{}, io.EOF // the rest is not read
	}
	p, err := answer.Next()
	switch {
	case err == nil:
		x.take(&p)
		return p, nil
	case x.tally.finished:
		return p, io.EOF
	case errors.Is(err, io.EOF):
		return p, errUnfinished
	}
	return p, err
}

// success sets the headers of an admitted call.
func (x *exchange) success(contentType string) {
	h := x.w.Header()
	h.Set("Content-Type", contentType)
	limitHeaders(h, x.call.offer, x.admission.Decision, nil)
	x.call.headers(h)
}

// buffer answers in one piece.
func (x *exchange) buffer(answer provider.Answer) *openai.Error {
	var content, refusal strings.Builder
	for {
		p, err := x.next(answer)
		if err == io.EOF {
			break
		}
		if err != nil {
			return x.failed(err)
		}
		content.WriteString(p.Content)
		refusal.WriteString(p.Refusal)
	}
	_ = answer.Close() // before the settle: the last of the call that can go wrong
	x.tally.ending = completed
	x.settle()
	x.success("application/json")
	m := openai.Reply{Role: "assistant", Content: new(content.String())}
	if refusal.Len() > 0 {
		m.Refusal = new(refusal.String())
	}
	c := x.completion(openai.WholeObject)
	c.Choices = []openai.Choice{{Message: &m, FinishReason: &x.finish}}
	c.Usage, c.Notice = x.usage(), x.empty()
	_, _ = x.w.Write(openai.Encode(c)) // a caller that has gone is charged all the same
	return nil
}
