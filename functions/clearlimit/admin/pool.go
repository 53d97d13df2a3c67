package admin

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// poolLimit is what a pool's burst is called among limits.
const poolLimit = "spend_ceiling"

// pool is a pool that a request is about. It is shown as an identity with one limit,
// what may be spent at once; but only its debt can be cleared, since a pool that is
// made full admits what the ceiling forbids.
type pool struct {
	name string
	*bucket.Pool
}

// poolNamed gives the pool that a request names as its identity, or nil if it names
// something else.
func (h *Handler) poolNamed(field func(string) (string, *openai.Error)) (*pool, *openai.Error) {
	values := map[string]string{}
	for _, w := range whom {
		value, err := field(w)
		if err != nil {
			return nil, err
		}
		values[w] = value
	}
	name, named := keys.Pool.ID(values["identity"])
	if !named || values["user"] != "" || values["email"] != "" {
		return nil, nil
	}
	if p := h.Pools[name]; p != nil {
		return &pool{name, p}, nil
	}
	if len(h.Pools) == 0 {
		return nil, openai.Errorf(openai.InvalidValue, "identity", "There are no pools in this configuration. Name a user, an email or another identity.")
	}
	return nil, openai.Errorf(openai.InvalidValue, "identity", "There is no pool %q: identity must be pool#NAME with one of %s.", openai.Clip(name), strings.Join(slices.Sorted(maps.Keys(h.Pools)), ", "))
}

// poolLeft is what is left of a pool, and its debt, in micro-dollars.
type poolLeft struct {
	limits.Left
	Debt int64 `json:"debt"`
}

func leftOfPool(s bucket.PoolState) poolLeft {
	return poolLeft{limits.LeftOf(burst(s), s.Status), price.Pico(s.Debt).MicroDollars()}
}

// burst is what may be spent at once of a pool, as a limit.
func burst(s bucket.PoolState) limits.Limit {
	l := limits.Limit{Limit: s.Limit, Unit: policy.USDMicros}
	l.Name = poolLimit
	return l
}

// poolView is a pool's burst as a limit, without what is left of it.
type poolView struct {
	Name     string      `json:"name"`
	Unit     policy.Unit `json:"unit"`
	Capacity int64       `json:"capacity"`
	Period   int64       `json:"period_seconds"`
}

func (p *pool) view(s bucket.PoolState) poolView {
	v := limits.ViewOf(burst(s), s.Status)
	return poolView{v.Name, v.Unit, v.Capacity, v.Period}
}

func (p *pool) identity() identityView { return identityView{Kind: "pool", ID: keys.Pool.Key(p.name)} }

// showPool answers GET /admin/limits for a pool.
func (h *Handler) showPool(w http.ResponseWriter, r *request, p *pool) *openai.Error {
	state, err := p.State(r.Context())
	if err != nil {
		return unavailable(r, err)
	}
	setting, err := h.Fuse.Current(r.Context())
	if err != nil {
		return unavailable(r, err)
	}
	type limit struct {
		poolView
		poolLeft
	}
	var view struct {
		Identity  identityView `json:"identity"`
		Fuse      fuse.State   `json:"fuse"`
		Challenge struct {
			Required bool `json:"required"`
		} `json:"challenge"`
		Limits   []limit    `json:"limits"`
		InFlight int        `json:"in_flight"`
		Holds    []struct{} `json:"holds"`
	}
	view.Identity, view.Fuse, view.Holds = p.identity(), setting.State, []struct{}{}
	view.Limits = []limit{{p.view(state), leftOfPool(state)}}
	openai.Answer(w, view)
	return nil
}

// clearPool answers POST /admin/limits/clear for a pool: it forgives a debt, and leaves
// a pool without one as it is.
func (h *Handler) clearPool(w http.ResponseWriter, r *request, p *pool, kind, reason string) *openai.Error {
	if kind != allLimits && kind != poolLimit {
		return openai.Errorf(openai.InvalidValue, "type", "A pool has one limit: type must be %s or %s.", allLimits, poolLimit)
	}
	before, err := p.State(r.Context())
	if err != nil {
		return unavailable(r, err)
	}
	after, forgiven := before, int64(0)
	if before.Debt > 0 {
		change := Change{Who: r.arn, Whom: keys.Pool.Key(p.name), What: "forgive the debt", Why: reason}
		if err := h.Audit.Record(r.Context(), change); err != nil {
			return unavailable(r, err)
		}
		if forgiven, after, err = p.Forgive(r.Context()); err != nil {
			return unavailable(r, err)
		}
		r.log.Info("debt forgiven", "pool", p.name, "usd", price.Pico(forgiven).String(), "reason", reason)
	}
	type cleared struct {
		poolView
		Before poolLeft `json:"before"`
		After  poolLeft `json:"after"`
	}
	openai.Answer(w, struct {
		Identity identityView `json:"identity"`
		Type     string       `json:"type"`
		Limits   []cleared    `json:"limits"`
		Forgiven int64        `json:"forgiven"` // micro-dollars; 0: there was no debt, and nothing was changed
	}{p.identity(), kind, []cleared{{p.view(before), leftOfPool(before), leftOfPool(after)}}, price.Pico(forgiven).MicroDollars()})
	return nil
}
