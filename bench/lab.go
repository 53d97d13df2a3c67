package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// lab is what topics measure with: the engine, connections to it, and the limits
// of the configuration.
type lab struct {
	config    string // the policy's file
	policy    *policy.Policy
	engine    *engine.Engine
	transport *http.Transport
	tables    atomic.Int64
	long      bool // measure also what takes minutes
}

func newLab(ctx context.Context, config string) (*lab, error) {
	p, err := policy.Load(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config, err)
	}
	e, err := engine.Start(ctx, engine.Options{})
	if err != nil {
		return nil, err
	}
	// As many idle connections as there are clients, or they would wait for each
	// other's.
	return &lab{config: config, policy: p, engine: e, transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}, nil
}

func (l *lab) close() {
	l.transport.CloseIdleConnections()
	_ = l.engine.Close()
}

// table creates an empty table and gives a client for it whose round trips take
// that much longer.
func (l *lab) table(ctx context.Context, delay time.Duration) (*network, *dynamodb.Client, string, error) {
	name := fmt.Sprintf("limits-%d", l.tables.Add(1))
	if err := engine.CreateLimitsTable(ctx, engine.Client(l.engine.URL), name); err != nil {
		return nil, nil, "", err
	}
	n := &network{base: l.transport, delay: delay}
	db := engine.Client(l.engine.URL, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: n} })
	return n, db, name, nil
}

var baseURL = regexp.MustCompile(`base_url: *\S+`)

// onStage sets a stage on the engine, and gives the configuration with its model.
func (l *lab) onStage(ctx context.Context) (*stage.Stage, []byte, error) {
	config, err := os.ReadFile(l.config)
	if err != nil {
		return nil, nil, err
	}
	on, err := stage.New(ctx, stage.Options{Store: l.engine.URL, Limits: "stage-limits", Spend: "stage-spend"})
	if err != nil {
		return nil, nil, err
	}
	return on, baseURL.ReplaceAll(config, []byte("base_url: "+on.ModelURL())), nil
}

// buckets are the buckets of one process on a table. They wait longer than usual
// for an answer: a busy machine must not look like a lost reply.
func (l *lab) buckets(db bucket.DynamoDB, table string, now func() time.Time) (*bucket.Buckets, error) {
	const patience = 20 * time.Second
	return bucket.New(db, bucket.Options{Table: table, LongestPeriod: l.policy.LongestPeriod(), Now: now,
		AttemptTimeout: patience, ReserveTimeout: patience, SettleTimeout: patience})
}

// network counts round trips and makes them longer.
type network struct {
	base  http.RoundTripper
	delay time.Duration
	trips atomic.Int64
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.trips.Add(1)
	if n.delay > 0 {
		timer := time.NewTimer(n.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return n.base.RoundTrip(r)
}

// userLimits are the limits of a signed-in user, and with a feature's quota one
// more: those that a call of the feature is charged to.
func (l *lab) userLimits(f *policy.Feature) []bucket.Limit {
	t := l.policy.Tiers[policy.User]
	limits := []bucket.Limit{
		limit(t.Requests, bucket.Never),
		limit(t.Tokens, bucket.OnSettle),
		limit(t.Spend, bucket.OnSettle),
	}
	if f.Quota != nil {
		limits = append(limits, limit(f.Quota, bucket.OnExpiry))
	}
	return limits
}

func limit(l *policy.Limit, r bucket.Return) bucket.Limit {
	return bucket.Limit{Name: l.Name, Capacity: l.Capacity, Period: l.Period, Return: r}
}
