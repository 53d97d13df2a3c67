package chatapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

// Parts are what a process brings to a Handler: its policy, its connection to
// the store, and how it reads secrets.
type Parts struct {
	Policy *policy.Policy
	// DynamoDB and Bucket.Table are required; what Build knows better is set by it.
	DynamoDB DynamoDB
	Bucket   bucket.Options
	Pool     bucket.PoolOptions
	Fuse     *fuse.Reader   // nil: one of DynamoDB and Bucket.Table
	Ledger   *ledger.Ledger // nil: spend events are only logged
	Secret   func(context.Context, policy.Secret) (string, error)
	AWS      aws.Config // region and credentials of Bedrock; not needed without it
	Log      *slog.Logger
	Metrics  *emf.Writer      // nil: none
	Version  string           // of the function, as Lambda counts it; "": it has none
	Now      func() time.Time // nil: time.Now
	Silence  time.Duration    // of a stream, after which a comment is sent; 0: 10 s
	// Providers are called in place of the policy's, by name; nil: those are.
	Providers map[string]provider.Provider
	// Keys fetches the keys of the issuer of tokens; nil: auth's own client.
	Keys *http.Client
	// RefusedOrigin is told of each page that was refused for its origin; nil: nobody is. The
	// origin is what the request says: any text.
	RefusedOrigin func(origin string)
	// AllowTestSecrets accepts the secrets with which challenge providers let
	// everything pass. Never in production.
	AllowTestSecrets bool
	// RefusedToken is told of each 401, from many goroutines; nil: only the log is.
	RefusedToken func(auth.Reason)
}

// DynamoDB is the part of *dynamodb.Client that a Handler uses.
type DynamoDB interface {
	bucket.DynamoDB
	challenge.DynamoDB
}

// Build makes a Handler of a policy. It does no I/O but that of Parts.Secret.
func Build(ctx context.Context, p Parts) (*Handler, error) {
	if p.Now == nil {
		p.Now = time.Now
	}
	h := &Handler{Policy: p.Policy, Log: p.Log, Metrics: p.Metrics, Version: p.Version, Now: p.Now, providers: p.Providers, wrong: newWrongs(), plans: &strangers{}, unsaid: &atomic.Bool{}, refusedToken: p.RefusedToken,
		silence: cmp.Or(p.Silence, defaultSilence), started: p.Now()}
	h.RefusedOrigin, h.mostBytes = p.RefusedOrigin, mostBytes(p.Policy)
	for _, part := range []func(context.Context, *Handler) error{p.callProviders, p.source, p.anonymous, p.backends, p.challenge, p.verifier, p.admission} {
		if err := part(ctx, h); err != nil {
			return nil, err
		}
	}
	h.servers = map[string]string{}
	for name, p := range h.providers {
		h.servers[name] = provider.Server(p)
	}
	h.policies = map[*admission.Offer]string{}
	for _, o := range h.admission.Offers() {
		h.policies[o] = policyHeader(o.Limits)
	}
	return h, nil
}

// callProviders makes what calls the models.
func (p Parts) callProviders(ctx context.Context, h *Handler) error {
	if h.providers != nil {
		return nil
	}
	h.providers = map[string]provider.Provider{}
	for _, used := range p.Policy.UsedProviders() {
		made, err := p.Provider(ctx, used)
		if err != nil {
			return fmt.Errorf("provider %s: %w", used.Name, err)
		}
		h.providers[used.Name] = provider.WithBreaker(made)
	}
	return nil
}

// verifier makes what checks tokens.
func (p Parts) verifier(ctx context.Context, h *Handler) (err error) {
	if a := p.Policy.Auth; a != nil {
		var backends []auth.Backend
		for _, name := range p.Policy.BackendNames() {
			if b := p.Policy.Backends[name]; b.Claim != "" {
				backends = append(backends, auth.Backend{Name: b.Name, Claim: b.Claim, Values: b.Values})
			}
		}
		h.Verifier, err = auth.New(ctx, auth.Config{Issuer: a.Issuer, Audience: a.Audience, JWKSURL: a.JWKSURL, PlanClaim: a.PlanClaim, AssumeEmailVerified: a.AssumeEmailVerified, Backends: backends, HTTPClient: p.Keys, Now: p.Now})
	}
	return err
}

// admission makes what decides.
func (p Parts) admission(_ context.Context, h *Handler) error {
	// A pool's bucket may refill slower than any period in the policy, if those are
	// very short.
	p.Bucket.LongestPeriod = p.Policy.LongestPeriod() + time.Minute
	p.Bucket.Now = p.Now
	p.Bucket.OnAbandoned = func(ctx context.Context, a bucket.Abandoned) error { return h.admission.Abandoned(ctx, a) }
	buckets, err := bucket.New(p.DynamoDB, p.Bucket)
	if err != nil {
		return err
	}
	pools := map[string]*bucket.Pool{}
	for name, pool := range p.Policy.Pools {
		if pools[name], err = buckets.NewPool(keys.Pool.Key(name), int64(pool.Ceiling), pool.Period, p.Pool); err != nil {
			return err
		}
	}
	if p.Fuse == nil {
		p.Fuse = fuse.NewReader(p.DynamoDB, p.Bucket.Table, p.Now)
	}
	h.admission, err = admission.New(admission.Config{
		Policy: p.Policy, Buckets: buckets, Pools: pools, Fuse: p.Fuse, Ledger: p.Ledger,
		Challenges: h.Challenges != nil, Log: logger, Now: p.Now,
		// Who is patient with the store is so with all that is asked of it.
		AskTime: p.Bucket.ReserveTimeout, TakeBackTime: p.Bucket.AttemptTimeout,
	})
	return err
}

// anonymous makes what tells anonymous callers apart.
func (p Parts) anonymous(ctx context.Context, h *Handler) error {
	if p.Policy.Fingerprint == nil {
		return nil
	}
	secret, err := p.Secret(ctx, p.Policy.Fingerprint.Secret)
	if err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}
	if h.Networks, err = fingerprint.New([]byte(secret)); err != nil {
		return err
	}
	h.Emails, err = emails.New(p.DynamoDB, p.Bucket.Table, []byte(secret), p.Now)
	return err
}

// source makes what decides which headers are believed.
func (p Parts) source(ctx context.Context, h *Handler) (err error) {
	var origin [][]byte
	if c := p.Policy.CloudFront; c != nil {
		for _, s := range c.OriginSecrets {
			secret, err := p.Secret(ctx, s)
			if err != nil {
				return fmt.Errorf("cloudfront: %w", err)
			}
			origin = append(origin, []byte(secret))
		}
	}
	h.Source, err = fingerprint.NewSource(origin...)
	return err
}

// challenge makes what asks for challenges and gives passes. There is none without
// anonymous callers.
func (p Parts) challenge(ctx context.Context, h *Handler) error {
	c, tier := p.Policy.Challenge, p.Policy.Tiers[policy.Anonymous]
	if c == nil || tier == nil {
		return nil
	}
	secret, err := p.Secret(ctx, c.Secret)
	if err != nil {
		return fmt.Errorf("challenge: %w", err)
	}
	if c.Kind == "altcha" {
		if h.Altcha, err = challenge.NewAltcha([]byte(secret), p.Now); err != nil {
			return fmt.Errorf("challenge: %w", err)
		}
		h.Challenges = h.Altcha
	} else {
		h.Challenges, err = challenge.NewSiteverify(challenge.SiteverifyConfig{
			Kind: c.Kind, Secret: secret, SiteKey: c.SiteKey, Hostname: c.Hostname, AllowTestSecrets: p.AllowTestSecrets, Now: p.Now})
		if err != nil {
			return fmt.Errorf("challenge: %w", err)
		}
	}
	if h.Passes, err = challenge.NewPasses([]byte(secret), tier.Passes.TTL, p.Now); err != nil {
		return fmt.Errorf("challenge: %w", err)
	}
	h.Used = challenge.NewUsed(p.DynamoDB, p.Bucket.Table, p.Now)
	return nil
}
