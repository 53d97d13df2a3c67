// Package limits says which limits an identity has: what the policy means in
// terms of buckets. Whoever charges, shows or clears limits takes them from here,
// so that all speak of the same ones.
//
// Guarantees: the limits of one identity have names of their own, and an order
// that does not change.
package limits

import (
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Kind is what an identity is: the kind of item that holds its buckets.
type Kind keys.Kind

const (
	User    = Kind(keys.User)    // signed in
	Network = Kind(keys.Network) // anonymous, known by its network and client
	Pass    = Kind(keys.Pass)    // anonymous, but has solved a challenge
)

// Key is the partition key of an identity's buckets.
func (k Kind) Key(id string) string { return keys.Kind(k).Key(id) }

// Shown is the kind as callers and support see it.
func (k Kind) Shown() string {
	if k == User {
		return "user"
	}
	return policy.Anonymous
}

// ShownID is the id as its owner sees it and as support can name it: of an anonymous
// caller, or one for whom a backend vouches, the whole key.
func (k Kind) ShownID(id string) string {
	if k == User && !strings.Contains(id, "#") {
		return id
	}
	return k.Key(id)
}

// Limit is a limit of an identity: the rule for the bucket, and what it counts.
//
// The bucket counts money in pico-dollars, as the ledger does, so that many cheap
// calls are not rounded up one by one. People see it in Unit: Shown and Asked.
type Limit struct {
	bucket.Limit
	Unit policy.Unit
	Role Role
}

// Role is whose a limit is and what it counts.
type Role uint8

const (
	Own         Role = iota // use, by an identity that is one caller: a user or a pass
	OfNetwork               // use, by a whole network of anonymous callers
	OfClient                // use, by one client of a network
	Quota                   // results of a feature, for an identity that is one caller
	ClientQuota             // results of a feature, for one client of a network
	PassCalls               // the calls that a pass is good for
)

// OfClient reports whether each client of a network has the limit for itself.
func (l Limit) OfClient() bool { return l.Role == OfClient || l.Role == ClientQuota }

// IsQuota reports whether the limit is a feature's quota.
func (l Limit) IsQuota() bool { return l.Role == Quota || l.Role == ClientQuota }

// CountsResults reports whether the limit is used by calls that gave a result, and by
// no others.
func (l Limit) CountsResults() bool { return l.IsQuota() || l.Role == PassCalls }

// OfTier are a tier's limits of one identity. Tokens and money come back when
// they were not used; requests never do, or failing calls would be free.
func OfTier(t *policy.Tier, k Kind) []Limit {
	var limits []Limit
	add := func(l *policy.Limit, r bucket.Return, role Role) {
		if l != nil {
			limits = append(limits, newLimit(l, r, role))
		}
	}
	own := Own
	switch k {
	case User: // no more than the tier's own
	case Network:
		own = OfClient
		if n := t.Network; n != nil {
			add(n.Requests, bucket.Never, OfNetwork)
			add(n.Tokens, bucket.OnSettle, OfNetwork)
		}
	case Pass:
		calls := newLimit(t.Passes.CallsLimit(), bucket.OnExpiry, PassCalls)
		calls.Life = t.Passes.TTL
		limits = append(limits, calls)
	}
	add(t.Requests, bucket.Never, own)
	add(t.Tokens, bucket.OnSettle, own)
	add(t.Spend, bucket.OnSettle, own)
	return limits
}

// OfFeature is a feature's quota, if it has one.
func OfFeature(f *policy.Feature, k Kind) []Limit {
	if f.Quota == nil {
		return nil
	}
	role := Quota
	if k == Network {
		role = ClientQuota
	}
	return []Limit{newLimit(f.Quota, bucket.OnExpiry, role)}
}

// Of are all limits that calls of a tier's identity are held against: the tier's,
// then the quotas of the features that it may use.
func Of(p *policy.Policy, t *policy.Tier, k Kind) []Limit {
	limits := OfTier(t, k)
	for _, name := range p.FeatureNames(t.Name) {
		limits = append(limits, OfFeature(p.Features[name], k)...)
	}
	return limits
}

// OfPasses is the limit on the passes that a network may obtain.
func OfPasses(p *policy.Passes) Limit {
	return newLimit(&p.Limit, bucket.OnSettle, OfNetwork)
}

func newLimit(l *policy.Limit, r bucket.Return, role Role) Limit {
	return Limit{Limit: bucket.Limit{Name: l.Name, Capacity: l.Capacity * scale(l.Unit), Period: l.Period, Return: r}, Unit: l.Unit, Role: role}
}

// scale is how many of a bucket's units make one of a limit's. The largest spend
// limit that a policy may have, a million dollars, is 1e18 pico-dollars.
func scale(u policy.Unit) int64 {
	if u == policy.USDMicros {
		return int64(price.MicroDollar)
	}
	return 1
}

// Least is the least that is asked of the bucket, 1 of the limit's unit: when nothing
// is shown to be left, nothing fits.
func (l Limit) Least() int64 { return scale(l.Unit) }

// Shown is what the bucket has left, or its capacity, in the limit's unit. It is
// rounded down: no more than can be had.
func (l Limit) Shown(n int64) int64 { return n / scale(l.Unit) }

// Asked is what was asked of the bucket, in the limit's unit, rounded up.
func (l Limit) Asked(n int64) int64 {
	if l.Unit == policy.USDMicros {
		return price.Pico(n).MicroDollars()
	}
	return n
}
