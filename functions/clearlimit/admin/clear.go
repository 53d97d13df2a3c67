package admin

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// allLimits is the type that clears every limit.
const allLimits = "all"

// clear answers POST /admin/limits/clear: it makes limits of an identity full. It
// clears what the item held when it was found.
func (h *Handler) clear(w http.ResponseWriter, r *request) *openai.Error {
	body, apiErr := readObject(r, append(slices.Clone(whom), "type", "reason")...)
	if apiErr != nil {
		return apiErr
	}
	kind, apiErr := text(body, "type")
	if apiErr != nil {
		return apiErr
	}
	if kind == "" {
		return openai.Errorf(openai.InvalidValue, "type", "Say what to clear: type must be all, a feature or a limit.")
	}
	reason, apiErr := text(body, "reason")
	if apiErr != nil {
		return apiErr
	}
	field := func(name string) (string, *openai.Error) { return text(body, name) }
	p, apiErr := h.poolNamed(field)
	if apiErr != nil {
		return apiErr
	}
	if p != nil {
		return h.clearPool(w, r, p, kind, reason)
	}
	t, apiErr := h.find(r, field)
	if apiErr != nil {
		return apiErr
	}
	list, apiErr := h.chosen(t, kind)
	if apiErr != nil {
		return apiErr
	}
	stored := slices.DeleteFunc(slices.Clone(list), func(l held) bool { return !l.stored })

	after := *t
	if len(stored) > 0 {
		change := Change{Who: r.arn, Whom: t.key(), What: "clear " + kind, Why: reason}
		if err := h.Audit.Record(r.Context(), change); err != nil {
			return unavailable(r, err)
		}
		if err := h.clearStored(r, t, stored); err != nil {
			return unavailable(r, err)
		}
		var err error
		if after.state, err = h.Buckets.Peek(r.Context(), t.key()); err != nil {
			return unavailable(r, err)
		}
		r.log.Info("limits cleared", "identity", t.key(), "type", kind, "limits", namesOf(stored), "reason", reason)
	}
	h.answerClear(w, kind, t, &after, list)
	return nil
}

// chosen are the limits that a type stands for.
func (h *Handler) chosen(t *target, kind string) ([]held, *openai.Error) {
	all := h.held(t)
	if kind == allLimits {
		return all, nil
	}
	list := slices.DeleteFunc(slices.Clone(all), func(l held) bool { return l.limit().Name != kind })
	if len(list) > 0 || h.hasClients(t, kind) {
		return list, nil
	}
	choices := strings.Join(append([]string{allLimits}, namesOf(all)...), ", ")
	if h.Policy.Features[kind] != nil {
		return nil, openai.Errorf(openai.InvalidValue, "type", "%s has no quota of its own for this caller: its calls count against the other limits. type must be one of %s.", kind, choices)
	}
	if kind == policy.LimitInFlight {
		return nil, openai.Errorf(openai.InvalidValue, "type", "Calls in flight are not cleared: each ends, or its hold expires. type must be one of %s.", choices)
	}
	return nil, openai.Errorf(openai.InvalidValue, "type", "type must be one of %s.", choices)
}

// hasClients reports whether kind is a limit of a network's clients, of whom there
// may be none at the moment.
func (h *Handler) hasClients(t *target, kind string) bool {
	tier := h.Policy.Tiers[policy.Anonymous]
	return t.kind == limits.Network && tier != nil && slices.ContainsFunc(limits.Of(h.Policy, tier, t.kind),
		func(l limits.Limit) bool { return l.OfClient() && l.Name == kind })
}

// namesOf are the names of limits, each once.
func namesOf(list []held) []string {
	var names []string
	for _, l := range list {
		if name := l.limit().Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// clearStored clears limits, an identity's own and each client's in writes of their
// own.
func (h *Handler) clearStored(r *request, t *target, list []held) error {
	var order []string
	byClient := map[string][]bucket.Limit{}
	for _, l := range list {
		if byClient[l.client] == nil {
			order = append(order, l.client)
		}
		byClient[l.client] = append(byClient[l.client], l.limit().Limit)
	}
	for _, client := range order {
		for some := range slices.Chunk(byClient[client], bucket.MaxLimits) {
			var err error
			if client == "" {
				err = h.Buckets.Clear(r.Context(), t.key(), some...)
			} else {
				err = h.Buckets.ClearClient(r.Context(), t.key(), client, some...)
			}
			// What has gone meanwhile, for its age or to make room, is full.
			if err != nil && !errors.Is(err, bucket.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// clearedView is a limit before and after.
type clearedView struct {
	Name     string         `json:"name"`
	Unit     policy.Unit    `json:"unit"`
	Capacity int64          `json:"capacity"`
	Period   int64          `json:"period_seconds"`
	Client   string         `json:"client,omitempty"`
	Tiers    []string       `json:"tiers,omitempty"`
	Before   limits.Left    `json:"before"`
	After    limits.Left    `json:"after"`
	Others   []clearedOther `json:"other_tiers,omitempty"`
}

type clearedOther struct {
	Tiers    []string    `json:"tiers"`
	Capacity int64       `json:"capacity"`
	Before   limits.Left `json:"before"`
	After    limits.Left `json:"after"`
}

func (h *Handler) answerClear(w http.ResponseWriter, kind string, before, after *target, list []held) {
	view := struct {
		Identity identityView  `json:"identity"`
		Type     string        `json:"type"`
		Limits   []clearedView `json:"limits"`
	}{h.identityView(before), kind, []clearedView{}}
	for _, l := range list {
		v := before.view(l)
		cleared := clearedView{v.Name, v.Unit, v.Capacity, v.Period, v.Client, v.Tiers, v.Left, after.view(l).Left, nil}
		for i, other := range v.Others {
			cleared.Others = append(cleared.Others, clearedOther{other.Tiers, other.Capacity, other.Left, after.view(l).Others[i].Left})
		}
		view.Limits = append(view.Limits, cleared)
	}
	openai.Answer(w, view)
}
