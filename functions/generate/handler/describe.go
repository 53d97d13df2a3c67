package handler

import (
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// models answers GET /v1/models: the features that the caller may use.
func (h *Handler) models(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	id, apiErr := h.identify(r)
	if apiErr != nil {
		return apiErr
	}
	e.identify(id)
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", []model{}}
	for _, name := range h.Policy.FeatureNames(id.tier.Name) {
		list.Data = append(list.Data, model{name, "model", h.started.Unix(), "tokenfuse"})
	}
	openai.Answer(w, list)
	return nil
}

// limits answers GET /v1/limits: the caller's own limits as they stand.
func (h *Handler) limits(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	id, apiErr := h.identify(r)
	if apiErr != nil {
		return apiErr
	}
	e.identify(id)
	fuseState := h.Fuse.Begin(r.Context())
	asking, cancel := h.allowance().asking(r.Context())
	defer cancel()
	state, err := h.Buckets.Peek(asking, id.key())
	setting, fuseErr := fuseState()
	if fuseErr != nil {
		logger(r.Context()).Error("the fuse was never read", "error", fuseErr)
		return openai.Unavailable(openai.StoreUnavailable, "The limits could not be read at the moment. Try again.")
	}
	if err != nil {
		logger(r.Context()).Error("peek failed", "error", err)
		return openai.Unavailable(openai.StoreUnavailable, "The limits could not be read at the moment. Try again.")
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
		Limits []limits.View `json:"limits"`
	}
	view.Identity.Kind, view.Identity.ID, view.Identity.Tier = id.kind.Shown(), id.shownID(), id.tier.Name
	view.Fuse = string(setting.State)
	share := h.restingShare(id)
	view.Challenge.Required = h.Challenges != nil && id.kind == limits.Network && setting.State == fuse.Challenge
	for _, l := range limits.Of(h.Policy, id.tier, id.kind) {
		client := ""
		if l.OfClient {
			client = id.client
		}
		s := state.ClientLimit(client, l.Limit)
		if share > 0 && l.OfClient && !l.Quota && s.FullIn.Seconds() >= share*l.Period.Seconds() {
			view.Challenge.Required = true
		}
		view.Limits = append(view.Limits, limits.ViewOf(l, s))
	}
	openai.Answer(w, view)
	return nil
}
