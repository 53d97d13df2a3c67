package handler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
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
	// Buckets: DynamoDB and Table are required; what Build knows better is set by it.
	DynamoDB DynamoDB
	Bucket   bucket.Options
	Pool     bucket.PoolOptions
	Ledger   *ledger.Ledger // nil: spend events are only logged
	Secret   func(context.Context, policy.Secret) (string, error)
	AWS      aws.Config // region and credentials of Bedrock; not needed without it
	Log      *slog.Logger
	Metrics  *emf.Writer      // nil: none
	Now      func() time.Time // nil: time.Now
	// AllowTestSecrets accepts the secrets with which challenge providers let
	// everything pass. Never in production.
	AllowTestSecrets bool
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
	cfg := Config{Policy: p.Policy, Log: p.Log, Metrics: p.Metrics, Ledger: p.Ledger, Now: p.Now, Providers: map[string]provider.Provider{}}
	for _, used := range p.Policy.UsedProviders() {
		made, err := p.provider(ctx, used)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", used.Name, err)
		}
		cfg.Providers[used.Name] = provider.WithBreaker(made)
	}
	if err := p.source(ctx, &cfg); err != nil {
		return nil, err
	}
	if err := p.anonymous(ctx, &cfg); err != nil {
		return nil, err
	}
	if err := p.challenge(ctx, &cfg); err != nil {
		return nil, fmt.Errorf("challenge: %w", err)
	}
	if a := p.Policy.Auth; a != nil {
		var err error
		cfg.Verifier, err = auth.New(ctx, auth.Config{Issuer: a.Issuer, Audience: a.Audience, JWKSURL: a.JWKSURL, PlanClaim: a.PlanClaim, Now: p.Now})
		if err != nil {
			return nil, err
		}
	}

	var h *Handler
	// A pool's bucket may refill slower than any period in the policy, if those are
	// very short.
	p.Bucket.LongestPeriod = p.Policy.LongestPeriod() + time.Minute
	p.Bucket.Now = p.Now
	// Who is patient with the store is so with all that is asked of it.
	cfg.AskTime, cfg.TakeBackTime = p.Bucket.ReserveTimeout, max(takeBackTime, p.Bucket.AttemptTimeout)
	p.Bucket.OnAbandoned = func(ctx context.Context, a bucket.Abandoned) error { return h.Abandoned(ctx, a) }
	var err error
	if cfg.Buckets, err = bucket.New(p.DynamoDB, p.Bucket); err != nil {
		return nil, err
	}
	cfg.Pools = map[string]*bucket.Pool{}
	for name, pool := range p.Policy.Pools {
		cfg.Pools[name], err = cfg.Buckets.NewPool("pool#"+name, int64(pool.Ceiling), pool.Period, p.Pool)
		if err != nil {
			return nil, err
		}
	}
	cfg.Fuse = fuse.NewReader(p.DynamoDB, p.Bucket.Table, p.Now)
	h, err = New(cfg)
	return h, err
}

// anonymous makes what tells anonymous callers apart.
func (p Parts) anonymous(ctx context.Context, cfg *Config) error {
	if p.Policy.Fingerprint == nil {
		return nil
	}
	secret, err := p.Secret(ctx, p.Policy.Fingerprint.Secret)
	if err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}
	if cfg.Networks, err = fingerprint.New([]byte(secret)); err != nil {
		return err
	}
	cfg.Emails, err = emails.New(p.DynamoDB, p.Bucket.Table, []byte(secret), p.Now)
	return err
}

// source makes what decides which headers are believed.
func (p Parts) source(ctx context.Context, cfg *Config) (err error) {
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
	cfg.Source, err = fingerprint.NewSource(origin...)
	return err
}

// challenge makes what asks for challenges and gives passes. There is none without
// anonymous callers.
func (p Parts) challenge(ctx context.Context, cfg *Config) error {
	c, tier := p.Policy.Challenge, p.Policy.Tiers[policy.Anonymous]
	if c == nil || tier == nil {
		return nil
	}
	secret, err := p.Secret(ctx, c.Secret)
	if err != nil {
		return err
	}
	if c.Kind == "altcha" {
		if cfg.Altcha, err = challenge.NewAltcha([]byte(secret), p.Now); err != nil {
			return err
		}
		cfg.Challenges = cfg.Altcha
	} else {
		cfg.Challenges, err = challenge.NewSiteverify(challenge.SiteverifyConfig{
			Kind: c.Kind, Secret: secret, SiteKey: c.SiteKey, Hostname: c.Hostname, AllowTestSecrets: p.AllowTestSecrets, Now: p.Now})
		if err != nil {
			return err
		}
	}
	if cfg.Passes, err = challenge.NewPasses([]byte(secret), tier.Passes.TTL, p.Now); err != nil {
		return err
	}
	cfg.Used = challenge.NewUsed(p.DynamoDB, p.Bucket.Table, p.Now)
	return nil
}
