package chatapi

import (
	"context"
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// embeddings answers POST /v1/embeddings.
func (h *Handler) embeddings(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	body, apiErr := openai.ReadBody(r, openai.MaxText)
	if apiErr != nil {
		return apiErr
	}
	id, apiErr := h.caller(r, e)
	if apiErr != nil {
		return apiErr
	}
	req, apiErr := openai.ParseEmbedding(body)
	if apiErr != nil {
		return apiErr
	}
	offer, apiErr := h.offer(r, e, id, req.Model)
	if apiErr != nil {
		return apiErr
	}
	call, refusal := offer.Cap(admission.Prompt{Inputs: req.Input})
	if refusal != nil {
		return h.refused(r, refusal, id, req.Model)
	}
	if apiErr := endIn(r.Context(), call, offer.Feature.Model.Provider.Timeout); apiErr != nil {
		return apiErr
	}
	a, apiErr := h.admit(w, r, e, id, call)
	if apiErr != nil {
		return apiErr
	}
	x := h.newExchange(w, r, e, id, a)
	x.embedding = req
	defer x.settle() // on every way out, a panic included
	return x.embed()
}

// embed calls, settles and answers. There is no fallback: the vectors of two models cannot
// be compared.
func (x *exchange) embed() *openai.Error {
	ctx, cancel := context.WithDeadline(x.ctx, x.admission.Call.End)
	defer cancel()
	m := x.meter.Model
	out := provider.EmbedRequest{EmbeddingRequest: *x.embedding, Extra: m.Extra, Trace: x.entry.trace, Answered: func(id string) { x.meter.RequestID = id }}
	out.Model = m.ID
	answer, err := provider.Embed(ctx, x.h.providers[m.Provider.Name], out)
	x.meter.Embedded(answer.Usage, err == nil)
	if err != nil {
		return x.failed(err)
	}
	x.meter.Ending = admission.Completed
	x.settle()
	x.success("application/json")
	list := openai.Embeddings{Model: x.entry.feature, Vectors: answer.Vectors, Base64: x.embedding.EncodingFormat == openai.Base64, Tokens: x.usage().Input}
	_, _ = list.WriteTo(x.w) // a caller that has gone is charged all the same
	return nil
}
