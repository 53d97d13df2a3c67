package policy

import (
	"maps"
	"slices"
)

// Backend is a server that calls for its visitors and is believed when it says who they
// are.
type Backend struct {
	Name string
	// Secrets are those by which it proves itself: the current one and, while it is
	// rotated, the one before or after. Where there is a Claim there may be none.
	Secrets []Secret
	// Claim is the claim by which a token of Auth is the backend's: if it is one of Values,
	// or a list with one of them. "": no token is.
	Claim  string
	Values []string
	// Tiers are those that it may vouch for. Whom it does not vouch for is anonymous.
	Tiers []string
	// Pool is what all its visitors together may cost, whatever it says of them: its own.
	Pool *Pool
}

// Serves reports whether b's visitors may be of a tier.
func (b *Backend) Serves(tier string) bool {
	return tier == Anonymous || slices.Contains(b.Tiers, tier)
}

// BackendNames lists the backends, sorted.
func (p *Policy) BackendNames() []string { return slices.Sorted(maps.Keys(p.Backends)) }

// vouched reports whether some backend may vouch for a tier.
func (p *Policy) vouched(tier string) bool {
	for _, b := range p.Backends {
		if slices.Contains(b.Tiers, tier) {
			return true
		}
	}
	return false
}

// Reached reports whether there can be callers of a tier: all but anonymous ones need a
// token, or a backend that vouches for them.
func (p *Policy) Reached(tier string) bool {
	return tier == Anonymous || p.Auth != nil || p.vouched(tier)
}

// freeThrough are the features that b's visitors may call for nothing, sorted.
func (p *Policy) freeThrough(b *Backend) (free []string) {
	for _, tier := range slices.Sorted(maps.Keys(p.Tiers)) {
		for _, feature := range p.FeatureNames(tier) {
			if _, cost := p.WorstCase(p.Features[feature], p.Tiers[tier]); cost == 0 && b.Serves(tier) && !slices.Contains(free, feature) {
				free = append(free, feature)
			}
		}
	}
	slices.Sort(free)
	return free
}

func (p *Policy) readBackend(name string, v value) *Backend {
	o := v.object()
	defer o.end()
	b := &Backend{Name: name}
	for _, item := range o.get("secrets").list("references to secrets") {
		if s := item.secret(); s != nil {
			b.Secrets = append(b.Secrets, *s)
		}
	}
	if token := o.get("token"); token.given() {
		to := token.object()
		defer to.end()
		b.Claim = to.need("claim").text()
		b.Values = to.need("values").texts("values of the claim", func(value, string) {})
	}
	o.needOne("secrets", "token")
	b.Tiers = o.get("tiers").texts("tiers", func(item value, tier string) {
		refer(item, "tier", p.Tiers)
		item.shape.except([]string{Anonymous}, "")
		if tier == Anonymous {
			item.report("must be another tier: every visitor may be %s", Anonymous)
		}
	})
	pool := o.need("pool")
	b.Pool = refer(pool, "pool", p.Pools)
	pool.shape.except([]string{PoolAll}, "")
	if b.Pool != nil && b.Pool.Name == PoolAll {
		pool.report("must be another pool: every call draws on %s already", PoolAll)
	}
	if p.Pools == nil && b.Pool == nil && pool.given() && o.shape == nil && !pool.r.has("pools") {
		pool.report("unknown pool: there is no section pools")
	}
	return b
}

// checkBackends reports what a backend needs of other sections, and a bound that is not
// its own.
func (p *Policy) checkBackends(r *reader) {
	owner := map[string]string{PoolAll: ""} // of pools; all was reported
	for _, name := range slices.Sorted(maps.Keys(p.Tiers)) {
		owner[p.Tiers[name].Pool] = "tiers." + name
	}
	for _, name := range p.BackendNames() {
		b, path := p.Backends[name], "backends."+name
		if b.Claim != "" && p.Auth == nil && !r.has("auth") {
			r.report(path+".token", "needs the section auth, which says whose tokens are good")
		}
		if p.Tiers != nil && p.Tiers[Anonymous] == nil && len(b.Tiers) == 0 && !r.has(path+".tiers") {
			r.report(path+".tiers", "is required where there is no tier %s: else it could call for nobody", Anonymous)
		}
		if b.Pool == nil {
			continue
		}
		if other := owner[b.Pool.Name]; other != "" {
			r.report(path+".pool", "must be a pool of its own: %s draws on it, too, and each could use up what the other needs", other)
		}
		owner[b.Pool.Name] = path
	}
}
