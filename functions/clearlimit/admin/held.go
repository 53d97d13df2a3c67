package admin

import (
	"maps"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// held is a limit as an identity's item holds it, which knows its name and period
// but not its capacity: that depends on the user's tier, which only their token
// tells. So it has a version for each capacity, that of tier user first.
type held struct {
	client   string // "" is the identity's own
	stored   bool   // in the item; else it was never used and is full
	versions []version
}

// version is a limit as the callers of some tiers have it.
type version struct {
	limits.Limit
	tiers []string
}

func (h held) limit() limits.Limit { return h.versions[0].Limit }

// held lists the limits of an identity: those that are in its item, and of each
// name that is not in there the first version, which is full.
func (h *Handler) held(t *target) []held {
	if t.kind == limits.User {
		return h.heldByUser(t)
	}
	tier := h.Policy.Tiers[policy.Anonymous]
	if tier == nil || t.kind == limits.Pass && tier.Passes == nil {
		return nil
	}
	known := limits.Of(h.Policy, tier, t.kind)
	if t.kind == limits.Network && tier.Passes != nil {
		known = append(known, limits.OfPasses(tier.Passes))
	}
	var list []held
	for _, l := range known {
		if !l.OfClient() {
			list = append(list, held{stored: t.state.HasLimit("", l.Limit), versions: []version{{Limit: l}}})
		}
	}
	for _, client := range t.state.Clients {
		for _, l := range known {
			if l.OfClient() && t.state.HasLimit(client, l.Limit) {
				list = append(list, held{client: client, stored: true, versions: []version{{Limit: l}}})
			}
		}
	}
	return list
}

func (h *Handler) heldByUser(t *target) []held {
	type id struct {
		name   string
		period time.Duration
	}
	var order []id
	all := map[id]*held{}
	stored := map[string]bool{} // by name
	for _, tier := range h.userTiers() {
		for _, l := range limits.Of(h.Policy, tier, limits.User) {
			id := id{l.Name, l.Period}
			if all[id] == nil {
				all[id] = &held{stored: t.state.HasLimit("", l.Limit)}
				order = append(order, id)
				stored[l.Name] = stored[l.Name] || all[id].stored
			}
			all[id].add(l, tier.Name)
		}
	}
	var list []held
	shown := map[string]bool{}
	for _, id := range order {
		h := all[id]
		if h.stored || !stored[id.name] && !shown[id.name] {
			list = append(list, *h)
			shown[id.name] = true
		}
	}
	return list
}

// userTiers are the tiers of signed-in users, user first.
func (h *Handler) userTiers() []*policy.Tier {
	var tiers []*policy.Tier
	for _, name := range slices.Sorted(maps.Keys(h.Policy.Tiers)) {
		switch tier := h.Policy.Tiers[name]; name {
		case policy.Anonymous:
		case policy.User:
			tiers = slices.Insert(tiers, 0, tier)
		default:
			tiers = append(tiers, tier)
		}
	}
	return tiers
}

func (h *held) add(l limits.Limit, tier string) {
	for i := range h.versions {
		if h.versions[i].Capacity == l.Capacity {
			h.versions[i].tiers = append(h.versions[i].tiers, tier)
			return
		}
	}
	h.versions = append(h.versions, version{l, []string{tier}})
}

// status is the state of a version of the limit.
func (h held) status(s bucket.State, v version) bucket.Status {
	return s.ClientLimit(h.client, v.Limit.Limit)
}
