package handler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Parts are what a process brings to a Handler: its policy, its connection to
// the store, and how it reads secrets.
type Parts struct {
	Policy   *policy.Policy
	DynamoDB DynamoDB
	Bucket   bucket.Options // Table is required; what Build knows better is set by it
	Secret   func(context.Context, policy.Secret) (string, error)
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// DynamoDB is the part of *dynamodb.Client that a Handler uses.
type DynamoDB interface {
	bucket.DynamoDB
	fuse.WriterDB
}

// Build makes a Handler of a policy. It does no I/O but that of Parts.Secret.
func Build(ctx context.Context, p Parts) (*Handler, error) {
	if p.Now == nil {
		p.Now = time.Now
	}
	cfg := Config{
		Policy: p.Policy, Log: p.Log, Now: p.Now,
		Fuse:  fuse.NewWriter(p.DynamoDB, p.Bucket.Table, p.Now),
		Audit: NewAudit(p.DynamoDB, p.Bucket.Table, p.Now),
	}
	p.Bucket.Now = p.Now
	p.Bucket.LongestPeriod = p.Policy.LongestPeriod() + time.Minute
	var err error
	if cfg.Buckets, err = bucket.New(p.DynamoDB, p.Bucket); err != nil {
		return nil, err
	}
	if f := p.Policy.Fingerprint; f != nil {
		secret, err := p.Secret(ctx, f.Secret)
		if err != nil {
			return nil, fmt.Errorf("fingerprint: %w", err)
		}
		if cfg.Emails, err = emails.New(p.DynamoDB, p.Bucket.Table, []byte(secret), p.Now); err != nil {
			return nil, err
		}
	}
	return New(cfg), nil
}
