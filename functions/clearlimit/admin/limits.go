package admin

import (
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// identityView is an identity as support sees it.
type identityView struct {
	Kind string  `json:"kind"`
	ID   string  `json:"id"`
	Tier *string `json:"tier"` // null: only the user's token tells
}

func (h *Handler) identityView(t *target) identityView {
	v := identityView{Kind: t.kind.Shown(), ID: t.kind.ShownID(t.id)}
	if tiers := h.userTiers(); t.kind != limits.User {
		anonymous := policy.Anonymous
		v.Tier = &anonymous
	} else if len(tiers) == 1 {
		v.Tier = &tiers[0].Name
	}
	return v
}

// limitView is a limit as /v1/limits shows it, as far as tier user has it, with
// what differs for others.
type limitView struct {
	limits.View
	Client string      `json:"client,omitempty"`
	Tiers  []string    `json:"tiers,omitempty"`
	Others []otherView `json:"other_tiers,omitempty"`
}

type otherView struct {
	Tiers    []string `json:"tiers"`
	Capacity int64    `json:"capacity"`
	limits.Left
}

func (t *target) view(l held) limitView {
	v := limitView{View: limits.ViewOf(l.limit(), l.status(t.state, l.versions[0])), Client: l.client, Tiers: l.versions[0].tiers}
	for _, other := range l.versions[1:] {
		v.Others = append(v.Others, otherView{other.tiers, other.Shown(other.Capacity), limits.LeftOf(other.Limit, l.status(t.state, other))})
	}
	return v
}

// limits answers GET /admin/limits.
func (h *Handler) limits(w http.ResponseWriter, r *request) *openai.Error {
	field := queryField(r)
	p, apiErr := h.poolNamed(field)
	if apiErr != nil {
		return apiErr
	}
	if p != nil {
		return h.showPool(w, r, p)
	}
	t, by, apiErr := h.named(r, field)
	if apiErr != nil {
		return apiErr
	}
	setting, err := h.Fuse.Current(r.Context())
	if err != nil {
		return unavailable(r, err)
	}
	if h.blockOf(t.key(), setting) == nil && !t.state.Exists {
		return by.unknown()
	}
	type hold struct {
		ID      string `json:"id"`
		Started int64  `json:"started_at"`
		Expires int64  `json:"expires_at"`
	}
	var view struct {
		Identity  identityView `json:"identity"`
		Fuse      fuse.State   `json:"fuse"`
		Challenge struct {
			Required bool `json:"required"`
		} `json:"challenge"`
		Blocked  *blockView  `json:"blocked,omitempty"`
		Limits   []limitView `json:"limits"`
		InFlight int         `json:"in_flight"`
		Holds    []hold      `json:"holds"`
	}
	view.Identity, view.Fuse, view.Blocked = h.identityView(t), setting.State, h.blockOf(t.key(), setting)
	view.Challenge.Required = h.Policy.Challenge != nil && t.kind == limits.Network && setting.State == fuse.Challenge
	view.Limits, view.InFlight, view.Holds = []limitView{}, t.state.InFlight, []hold{}
	for _, l := range h.held(t) {
		view.Limits = append(view.Limits, t.view(l))
	}
	for _, o := range t.state.Holds {
		view.Holds = append(view.Holds, hold{o.ID, o.Start.Unix(), o.Expiry.Unix()})
	}
	openai.Answer(w, view)
	return nil
}
