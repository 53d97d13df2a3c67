package chatapi

import (
	"context"
	"net/http"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// chat answers POST /v1/chat/completions.
func (h *Handler) chat(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	return h.complete(w, r, e, func(body []byte) (*openai.ChatRequest, form, *openai.Error) {
		req, err := openai.ParseChat(body)
		if err != nil {
			return nil, nil, err
		}
		return req, chatForm{usage: req.StreamOptions.IncludeUsage}, nil
	})
}

// complete answers a request that parse reads: it is the same for every API.
func (h *Handler) complete(w http.ResponseWriter, r *http.Request, e *entry, parse func(body []byte) (*openai.ChatRequest, form, *openai.Error)) *openai.Error {
	body, apiErr := openai.ReadBody(r, h.mostBytes)
	if apiErr != nil {
		return apiErr
	}
	id, apiErr := h.caller(r, e)
	if apiErr != nil {
		return apiErr
	}
	if apiErr = fits(body, mostOf(h.Policy, id.Tier)); apiErr != nil {
		return apiErr
	}
	req, form, apiErr := parse(body)
	if apiErr != nil {
		return apiErr
	}
	call, apiErr := h.prepare(r, e, id, req, body)
	if apiErr != nil {
		return apiErr
	}
	a, apiErr := h.admit(w, r, e, id, call)
	if apiErr != nil {
		return apiErr
	}
	return h.exchange(w, r, e, id, req, form, a)
}

// offer finds the feature that a model field names, of which the log is told, too.
func (h *Handler) offer(r *http.Request, e *entry, id identity, name string) (*admission.Offer, *openai.Error) {
	offer, refusal := h.admission.Offer(id.Caller, name)
	if refusal != nil {
		return nil, h.refused(r, refusal, id, name)
	}
	e.feature = offer.Feature.Name
	return offer, nil
}

// prepare finds what the model field names and holds the request, which was read of body,
// against its caps.
func (h *Handler) prepare(r *http.Request, e *entry, id identity, req *openai.ChatRequest, body []byte) (*admission.Call, *openai.Error) {
	offer, apiErr := h.offer(r, e, id, req.Model)
	if apiErr != nil {
		return nil, apiErr
	}
	if apiErr := fits(body, mostFor(offer.Feature, id.Tier)); apiErr != nil {
		return nil, apiErr
	}
	call, refusal := offer.Cap(admission.Prompt{Messages: req.Messages, MaxOutput: req.MaxOutput(), Format: len(req.ResponseFormat),
		Tooling: req.Tooling, Effort: req.ReasoningEffort})
	if refusal != nil {
		return nil, h.refused(r, refusal, id, req.Model)
	}
	model := offer.Candidates[0].Model
	req.Messages, req.Tooling, req.ReasoningEffort = call.Messages, call.Tooling, call.Effort // as they go upstream
	switch name := model.Provider.Kind.Unsupported(req); name {
	case "":
	case "messages":
		return nil, openai.Errorf(openai.InvalidValue, name, "The messages have no text.")
	default:
		return nil, openai.Errorf(openai.UnsupportedParameter, name, "%s is not supported by %s.", name, e.feature)
	}
	return call, endIn(r.Context(), call, model.Provider.Timeout)
}

// endIn sets when the provider call ends at the latest, a fallback included, so that
// settling is over before the invocation is.
func endIn(ctx context.Context, call *admission.Call, timeout time.Duration) *openai.Error {
	now := time.Now() // contexts go by the real clock
	call.End = now.Add(timeout)
	if hard, ok := ctx.Deadline(); ok && hard.Add(-admission.SettleMargin).Before(call.End) {
		call.End = hard.Add(-admission.SettleMargin)
	}
	if !call.End.After(now) {
		return openai.Errorf(openai.ProviderTimeout, "", "There is not enough time left for this call.")
	}
	return nil
}

// outgoing is what goes to a model. It is streamed wherever the model can, also for a
// caller who wants one piece: so what was made is known if time runs out.
func outgoing(req *openai.ChatRequest, call *admission.Call, m *policy.Model) provider.Request {
	return provider.Request{
		Model:           m.ID,
		Messages:        call.Messages,
		MaxTokensField:  m.MaxTokensField,
		MaxOutputTokens: int(call.MaxOutput),
		Stream:          m.Stream,
		Sampling:        req.Sampling,
		Tooling:         call.Tooling,
		ReasoningEffort: call.Effort,
		ResponseFormat:  req.ResponseFormat,
		Extra:           m.Extra,
	}
}

// admit reserves the worst case of a call, or says why not.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, e *entry, id identity, call *admission.Call) (*admission.Admission, *openai.Error) {
	begun := time.Now()
	a, refusal := h.admission.Admit(r.Context(), id.Caller, call)
	e.asking = time.Since(begun)
	if refusal == nil {
		e.admission = a
		return a, nil
	}
	if refusal.Kind == admission.OverLimit || refusal.Kind == admission.TooManyOpen {
		callHeaders(w.Header(), call)
	}
	if refusal.Kind == admission.OverLimit {
		h.limitHeaders(w.Header(), call.Offer, refusal.Left, refusal)
	}
	h.learnDenied(r.Context(), id, refusal)
	return nil, h.refused(r, refusal, id, call.Offer.Feature.Name)
}
