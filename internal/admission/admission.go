// Package admission decides who may spend what, before it is spent: it puts a fuse in
// front of calls whose cost is known only when they have ended.
//
//	offer, refusal := c.Offer(caller, "docqa")       which feature, and is it open to them
//	call, refusal := offer.Cap(prompt)               what it is at most, in tokens and money
//	a, refusal := c.Admit(ctx, caller, call)         the worst case, from fuse, pools and limits
//	meter := a.Meter(ctx, call.Candidates[0])        what is seen of the answer
//	bill := a.Settle(ctx, meter.Tally)               the worst case replaced by what was used
//
// It knows nothing of HTTP, of a wire format or of sentences: a Refusal is a kind with
// figures, and whoever speaks to the caller puts it into words.
//
// Guarantees: no admission without a reservation of the worst case in every limit and
// every pool; what a refusal took on the way goes back, at once; a settle takes effect
// once, however often it is asked for; a spend event is recorded before the hold that
// tells of its call is removed. Logs hold no prompt and no answer.
//
// Trusted: the policy, the store, and what the Caller is said to be.
package admission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Config is what a Controller decides by. Policy, Buckets, Fuse and Now are required.
type Config struct {
	Policy  *policy.Policy
	Buckets *bucket.Buckets
	Pools   map[string]*bucket.Pool // by name in the policy
	Fuse    *fuse.Reader
	Ledger  *ledger.Ledger // nil: spend events are only logged

	// Challenges: anonymous callers can be asked for a challenge, and get a pass for it.
	Challenges bool

	// What a request may ask of the store before its call, and take back after that: see
	// Allowance. 0: 2.5 s. Below 1.2 s: 1.2 s.
	AskTime, TakeBackTime time.Duration

	// Log gives the logger of a request. nil: slog.Default.
	Log func(context.Context) *slog.Logger
	Now func() time.Time
}

// Controller decides. It is safe for concurrent use.
type Controller struct {
	Config
	offers map[audience]map[string]*Offer // by feature
}

// audience is a kind of callers of a tier: who has the same limits.
type audience struct {
	tier string
	kind limits.Kind
}

// Caller is who wants to spend, and what is known of them beside that.
type Caller struct {
	Kind limits.Kind
	ID   string // of a user the subject, else an opaque key
	Tier *policy.Tier
	// Client is what tells the callers of a network apart; only of limits.Network.
	Client string
	// Networks are the keys of the networks that may have got a pass, today's and
	// yesterday's; only of limits.Pass.
	Networks []string
	// Ends is when a pass ends, and its limits with it; only of limits.Pass.
	Ends time.Time
	// Jitter moves the share of the limits from which on a client is challenged, so that
	// it cannot be read off: a factor about 1. Only of limits.Network.
	Jitter float64
	// Backend calls for the caller, who also draws on its pool. nil: nobody does.
	Backend *policy.Backend
	// Scripted: something about the caller looks like a script.
	Scripted bool
}

// Key is the partition key of the caller's buckets.
func (c Caller) Key() string { return c.Kind.Key(c.ID) }

// sees is a limit as the caller sees it at now.
func (c Caller) sees(l limits.Limit, state bucket.Status, now time.Time) limits.Seen {
	s := limits.Seen{Limit: l, State: state}
	if !c.Ends.IsZero() {
		s.Ends = max(time.Microsecond, c.Ends.Sub(now))
	}
	return s
}

// New prepares what all calls have in common. An error names the feature that cannot be
// offered.
func New(cfg Config) (*Controller, error) {
	cfg.AskTime, cfg.TakeBackTime = cmp.Or(cfg.AskTime, askTime), max(cfg.TakeBackTime, takeBackTime)
	if cfg.Log == nil {
		cfg.Log = func(context.Context) *slog.Logger { return slog.Default() }
	}
	c := &Controller{Config: cfg, offers: map[audience]map[string]*Offer{}}
	for _, t := range cfg.Policy.Tiers {
		for _, k := range c.kinds(t) {
			offers := map[string]*Offer{}
			c.offers[audience{t.Name, k}] = offers
			for _, name := range cfg.Policy.FeatureNames(t.Name) {
				o, err := newOffer(cfg.Policy.Features[name], t, k)
				if err != nil {
					return nil, fmt.Errorf("admission: feature %s: %w", name, err)
				}
				offers[name] = o
			}
		}
	}
	return c, nil
}

// kinds are the kinds of callers of a tier.
func (c *Controller) kinds(t *policy.Tier) []limits.Kind {
	switch {
	case t.Name != policy.Anonymous:
		return []limits.Kind{limits.User}
	case c.Challenges:
		return []limits.Kind{limits.Network, limits.Pass}
	}
	return []limits.Kind{limits.Network}
}

// Offer finds the feature that a caller names.
func (c *Controller) Offer(caller Caller, feature string) (*Offer, *Refusal) {
	if o := c.offers[audience{caller.Tier.Name, caller.Kind}][feature]; o != nil {
		return o, nil
	}
	if c.Policy.Features[feature] != nil {
		return nil, &Refusal{Kind: FeatureClosed}
	}
	return nil, &Refusal{Kind: NoSuchFeature}
}

// Offers are all offers to all kinds of callers, in no order.
func (c *Controller) Offers() (all []*Offer) {
	for _, offers := range c.offers {
		all = slices.AppendSeq(all, maps.Values(offers))
	}
	return all
}
