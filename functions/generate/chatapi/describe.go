package chatapi

import (
	"net/http"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// models answers GET /v1/models: the features that the caller may use.
func (h *Handler) models(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	id, apiErr := h.caller(r, e)
	if apiErr != nil {
		return apiErr
	}
	list := struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", []modelObject{}}
	for _, name := range h.Policy.FeatureNames(id.Tier.Name) {
		list.Data = append(list.Data, h.modelOf(id, name))
	}
	openai.Answer(w, list)
	return nil
}

// model answers GET /v1/models/{id}: a feature that the caller may use.
func (h *Handler) model(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	id, apiErr := h.caller(r, e)
	if apiErr != nil {
		return apiErr
	}
	name := modelName(r)
	if !slices.Contains(h.Policy.FeatureNames(id.Tier.Name), name) {
		return noSuchModel(name)
	}
	openai.Answer(w, h.modelOf(id, name))
	return nil
}

// modelObject is a feature as an OpenAI model, with its caps for a caller.
type modelObject struct {
	ID              string `json:"id"`
	Object          string `json:"object"`
	Created         int64  `json:"created"`
	OwnedBy         string `json:"owned_by"`
	MaxInputChars   *int64 `json:"max_input_chars"` // null: there is no such cap
	MaxMessages     int64  `json:"max_messages,omitempty"`
	MaxOutputTokens int64  `json:"max_output_tokens,omitempty"`
	MaxInputs       int64  `json:"max_inputs,omitempty"` // of a feature that makes embeddings, which has neither of those
}

// modelOf shows a feature that is open to a caller.
func (h *Handler) modelOf(id identity, feature string) modelObject {
	m := modelObject{ID: feature, Object: "model", Created: h.started.Unix(), OwnedBy: "tokenfuse", MaxMessages: id.Tier.MaxMessages}
	if most := id.Tier.MaxInputChars; most > 0 {
		m.MaxInputChars = &most
	}
	if o, refusal := h.admission.Offer(id.Caller, feature); refusal == nil {
		m.MaxOutputTokens, m.MaxInputs = o.MaxOutput(), o.Feature.MaxInputs
	}
	if m.MaxInputs > 0 {
		m.MaxMessages = 0
	}
	return m
}

// limits answers GET /v1/limits: the caller's own limits as they stand.
func (h *Handler) limits(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	id, apiErr := h.caller(r, e)
	if apiErr != nil {
		return apiErr
	}
	standing, refusal := h.admission.Standing(r.Context(), id.Caller)
	if refusal != nil {
		return storeDown("The limits could not be read")
	}
	var view struct {
		Identity struct {
			Kind string `json:"kind"`
			ID   string `json:"id"`
			Tier string `json:"tier"`
		} `json:"identity"`
		Fuse      string `json:"fuse"`
		Challenge struct {
			Required bool `json:"required"`
		} `json:"challenge"`
		Blocked *int64        `json:"blocked_until,omitempty"` // Unix seconds
		Limits  []limits.View `json:"limits"`
	}
	view.Identity.Kind, view.Identity.ID, view.Identity.Tier = id.Kind.Shown(), id.shownID(), id.Tier.Name
	view.Fuse, view.Challenge.Required, view.Limits = string(standing.Fuse), standing.ChallengeDue, standing.Limits
	if until := standing.Blocked; !until.IsZero() {
		view.Blocked = new(until.Unix())
	}
	openai.Answer(w, view)
	return nil
}
