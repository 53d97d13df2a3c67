package admin

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Parts are what a process brings to a Handler: its policy, its connection to
// the store, and how it reads secrets.
type Parts struct {
	Policy   *policy.Policy
	DynamoDB DynamoDB
	Bucket   bucket.Options                                                          // Table is required; what Build knows better is set by it
	Spend    string                                                                  // the table of the spend events, which is only read
	Denials  func(ctx context.Context, from, to time.Time) (map[string]int64, error) // nil: nobody knows
	Apart    bool                                                                    // Denials knows those of this process alone
	Secret   func(context.Context, policy.Secret) (string, error)
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
	// ByKey lets the policy's keys in, and no IAM identity. They are read at once, by Secret.
	ByKey bool
}

// DynamoDB is the part of *dynamodb.Client that a Handler uses.
type DynamoDB interface {
	bucket.DynamoDB
	fuse.WriterDB
	AuditDB
	ledger.DynamoDB
}

// Build makes a Handler of a policy. It does no I/O but for ByKey: the fuse must be within
// reach when secrets are not.
func Build(ctx context.Context, p Parts) (*Handler, error) {
	if p.Now == nil {
		p.Now = time.Now
	}
	cfg := Config{
		Policy: p.Policy, Log: p.Log, Now: p.Now,
		Fuse:  fuse.NewWriter(p.DynamoDB, p.Bucket.Table, p.Now),
		Audit: NewAudit(p.DynamoDB, p.Bucket.Table, p.Now), Denials: p.Denials, Apart: p.Apart, DB: p.DynamoDB, Table: p.Bucket.Table,
	}
	var err error
	if p.ByKey {
		if cfg.Keys, err = readKeys(ctx, p); err != nil {
			return nil, err
		}
	}
	p.Bucket.Now = p.Now
	p.Bucket.LongestPeriod = p.Policy.LongestPeriod() + time.Minute
	if cfg.Spend, err = ledger.New(p.DynamoDB, ledger.Options{Table: p.Spend, Now: p.Now, ReadOnly: true, Log: p.Log}); err != nil {
		return nil, err
	}
	if cfg.Buckets, err = bucket.New(p.DynamoDB, p.Bucket); err != nil {
		return nil, err
	}
	cfg.Pools = map[string]*bucket.Pool{}
	for name, pool := range p.Policy.Pools {
		if cfg.Pools[name], err = cfg.Buckets.NewPool(keys.Pool.Key(name), int64(pool.Ceiling), pool.Period, bucket.PoolOptions{}); err != nil {
			return nil, err
		}
	}
	if p.Policy.Fingerprint != nil {
		cfg.Emails = p.emails()
	}
	return New(cfg), nil
}

// secretTime bounds the reading of a secret while somebody waits.
const secretTime = 5 * time.Second

// emails gives what makes the index of e-mail addresses when the first is looked up, and
// again as long as its secret cannot be read.
func (p Parts) emails() func(context.Context) (*emails.Index, error) {
	var made atomic.Pointer[emails.Index]
	return func(ctx context.Context) (*emails.Index, error) {
		if index := made.Load(); index != nil {
			return index, nil
		}
		ctx, cancel := context.WithTimeout(ctx, secretTime)
		defer cancel()
		secret, err := p.Secret(ctx, p.Policy.Fingerprint.Secret)
		if err != nil {
			return nil, fmt.Errorf("fingerprint: %w", err)
		}
		index, err := emails.New(p.DynamoDB, p.Bucket.Table, []byte(secret), p.Now)
		if err == nil {
			made.Store(index)
		}
		return index, err
	}
}
