// Package limits says which limits an identity has: what the policy means in
// terms of buckets. Whoever charges, shows or clears limits takes them from here,
// so that all speak of the same ones.
//
// Guarantees: the limits of one identity have names of their own, and an order
// that does not change.
package limits

import (
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

// ShownID is the id as its owner sees it and as support can name it: of an
// anonymous caller the whole key.
func (k Kind) ShownID(id string) string {
	if k == User {
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
	Unit      policy.Unit
	Quota     bool // a number of results
	Network   bool // of a whole network of anonymous callers
	OfClient  bool // of one client in it
	PassCalls bool // the number of calls that a pass is good for
}

// OfTier are a tier's limits of one identity. Tokens and money come back when
// they were not used; requests never do, or failing calls would be free.
func OfTier(t *policy.Tier, k Kind) []Limit {
	var limits []Limit
	add := func(l *policy.Limit, r bucket.Return, mark func(*Limit)) {
		if l == nil {
			return
		}
		made := newLimit(l, r)
		if mark != nil {
			mark(&made)
		}
		limits = append(limits, made)
	}
	var own func(*Limit)
	switch k {
	case Network:
		own = func(l *Limit) { l.OfClient = true }
		if n := t.Network; n != nil {
			whole := func(l *Limit) { l.Network = true }
			add(n.Requests, bucket.Never, whole)
			add(n.Tokens, bucket.OnSettle, whole)
		}
	case Pass:
		add(t.Passes.CallsLimit(), bucket.OnExpiry, func(l *Limit) { l.PassCalls, l.Life = true, t.Passes.TTL })
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
	l := newLimit(f.Quota, bucket.OnExpiry)
	l.Quota, l.OfClient = true, k == Network
	return []Limit{l}
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
	l := newLimit(&p.Limit, bucket.OnSettle)
	l.Network = true
	return l
}

func newLimit(l *policy.Limit, r bucket.Return) Limit {
	return Limit{Limit: bucket.Limit{Name: l.Name, Capacity: l.Capacity * scale(l.Unit), Period: l.Period, Return: r}, Unit: l.Unit}
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
