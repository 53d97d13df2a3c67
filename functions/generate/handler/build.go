package handler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/auth"
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
	DynamoDB bucket.DynamoDB
	Bucket   bucket.Options
	Secret   func(context.Context, policy.Secret) (string, error)
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// Build makes a Handler of a policy. It does no I/O but that of Parts.Secret.
func Build(ctx context.Context, p Parts) (*Handler, error) {
	if p.Now == nil {
		p.Now = time.Now
	}
	cfg := Config{Policy: p.Policy, Log: p.Log, Now: p.Now, Providers: map[string]provider.Provider{}}
	for _, name := range usedProviders(p.Policy) {
		made, err := newProvider(ctx, p.Policy.Providers[name], p.Secret)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
		cfg.Providers[name] = made
	}
	if f := p.Policy.Fingerprint; f != nil {
		secret, err := p.Secret(ctx, f.Secret)
		if err != nil {
			return nil, fmt.Errorf("fingerprint: %w", err)
		}
		if cfg.Networks, err = fingerprint.New([]byte(secret)); err != nil {
			return nil, err
		}
	}
	if a := p.Policy.Auth; a != nil {
		var err error
		cfg.Verifier, err = auth.New(ctx, auth.Config{Issuer: a.Issuer, Audience: a.Audience, JWKSURL: a.JWKSURL, PlanClaim: a.PlanClaim, Now: p.Now})
		if err != nil {
			return nil, err
		}
	}

	var h *Handler
	p.Bucket.LongestPeriod = p.Policy.LongestPeriod()
	p.Bucket.Now = p.Now
	p.Bucket.OnAbandoned = func(ctx context.Context, a bucket.Abandoned) error { return h.Abandoned(ctx, a) }
	var err error
	if cfg.Buckets, err = bucket.New(p.DynamoDB, p.Bucket); err != nil {
		return nil, err
	}
	h, err = New(cfg)
	return h, err
}

// usedProviders are the providers of models that some feature calls: a spare one
// in the file needs no key.
func usedProviders(p *policy.Policy) []string {
	used := map[string]bool{}
	for _, f := range p.Features {
		used[f.Model.Provider.Name] = true
	}
	return names(used)
}

func newProvider(ctx context.Context, p *policy.Provider, read func(context.Context, policy.Secret) (string, error)) (provider.Provider, error) {
	if p.Kind != "openai" {
		return nil, fmt.Errorf("kind %s cannot be called yet", p.Kind)
	}
	var key string
	if p.APIKey != nil {
		var err error
		if key, err = read(ctx, *p.APIKey); err != nil {
			return nil, err
		}
	}
	return provider.NewOpenAI(provider.OpenAIConfig{BaseURL: p.BaseURL, APIKey: key})
}
