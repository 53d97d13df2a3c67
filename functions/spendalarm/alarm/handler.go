// Package alarm is spendalarm: it sums what was spent in the last 60 minutes,
// tells CloudWatch, and tells people when it is too much.
//
// # Guarantees
//
//   - One page per incident and change: that it began (opened), that it doubled or
//     quadrupled the threshold (escalated), that it lasts (repeated, on a timer), that
//     it is over (cleared, at four fifths of the threshold, so that spending around it
//     does not flap). Runs that overlap, or that come twice, page once.
//   - The newest run counts. The state remembers up to when the newest run has seen. A
//     run that has seen less (it began earlier and took longer, or its clock is a
//     little behind) pages nothing, leaves the fuse alone and puts no metrics: in the
//     middle of an attack it would say that all is well.
//   - No incident goes untold. Who pages claims the page first and confirms it
//     afterwards, each with a conditional write of one item. If publishing fails, Run
//     gives the claim up and returns an error; if the process dies, the claim lapses
//     within claimFor; either way the next run pages. A crash between publishing and
//     confirming therefore pages twice, never not at all. An incident that is over
//     before anybody could be told is told of when it clears.
//   - An attack does not raise the threshold. Hours of incidents are left out of the
//     baseline, and so is the last day as soon as there is more: spending that grows
//     just below the threshold does not lift it within the day. What an attack or a
//     test costs unseen is no baseline either, until it is so on three days.
//   - The fuse, if configured, is set before the page goes out, even if none can, and
//     renewed by each run while the incident lasts. If spendalarm stops running it
//     ends by itself after fuseFor. What an operator set is left alone.
//   - Nothing of a prompt or an answer is known here. Metrics bear no identities.
//
// # Denials
//
// Denials are not among the metrics that are put here: they are free, which means
// that none leaves a trace in a table, so that spendalarm has nowhere to count them.
// generate, which denies, writes the metric Denied (by Limit) to its own log, in
// Embedded Metric Format and in the same namespace.
//
// # The threshold
//
// A fixed number of dollars; or factor x the highest normal hour of the past 30 days,
// but at least the floor; or both, and then the lower one counts: the fixed number is
// an upper bound. The highest normal hour is only used when there is a day of data.
// Until then the fixed number counts, or, without one, the floor.
//
// The highest normal hour is the most that an hour cost on at least 3 different days
// (UTC). The highest hour of all would be whatever one load test or one unseen attack
// made it, for a month. The third highest day's peak is moved by no two hours and by
// nothing that lasts a day, and a quantile of all hours would leave out the busy hour
// that comes once a week. Spending that grows is followed on the fourth day: three
// days must agree, and the last 24 hours do not count. What comes more seldom than three times
// in 30 days is not normal, and pages if it is above the threshold. Little data counts
// as it is: the highest hour of the first three days with calls, the second highest
// day's peak of up to seven.
//
// # Permissions
//
// On Limits dynamodb:GetItem of "alarm", "fuse" and "pool#...", PutItem of "alarm",
// UpdateItem of "fuse"; on Spend dynamodb:Query and UpdateItem (roll-ups); sns:Publish
// to the topic; cloudwatch:PutMetricData. A run that must make many roll-ups takes a
// while: 2 minutes are a good timeout.
//
// # Trust
//
// The tables, the clock to about a minute, and the policy are trusted. Identities
// are foreign text: they are quoted for the shell wherever a person may copy them.
package alarm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// window is what is summed.
const window = time.Hour

// Ledger is the part of *ledger.Ledger that a Handler uses.
type Ledger interface {
	Sum(ctx context.Context, from, to time.Time) (ledger.Summary, error)
	Hours(ctx context.Context, from, to time.Time) ([]ledger.Hour, error)
}

// DynamoDB is the part of *dynamodb.Client that a Handler uses. It writes the items of
// the alarm and of the fuse and reads the pools'.
type DynamoDB interface {
	bucket.DynamoDB
	fuse.WriterDB
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// SNS is the part of *sns.Client that a Handler uses.
type SNS interface {
	Publish(context.Context, *sns.PublishInput, ...func(*sns.Options)) (*sns.PublishOutput, error)
}

// CloudWatch is the part of *cloudwatch.Client that a Handler uses.
type CloudWatch interface {
	PutMetricData(context.Context, *cloudwatch.PutMetricDataInput, ...func(*cloudwatch.Options)) (*cloudwatch.PutMetricDataOutput, error)
}

// Config is what a Handler is made of. All is required but what is marked.
type Config struct {
	Policy     *policy.Policy // without an Alarm nothing is compared, only measured
	Ledger     Ledger
	State      DynamoDB
	Table      string // Limits
	SNS        SNS
	TopicARN   string
	CloudWatch CloudWatch
	Namespace  string           // of the metrics; empty: tokenfuse
	Endpoint   string           // of the admin routes, for the commands in messages; empty: they name none
	Now        func() time.Time // nil: time.Now
	Log        *slog.Logger     // nil: slog.Default()
}

// Handler is spendalarm. It is safe for concurrent use.
type Handler struct {
	Config
	fuse  *fuse.Writer
	pools map[string]*bucket.Pool
}

// New checks the configuration. It does no I/O.
func New(cfg Config) (*Handler, error) {
	if cfg.Namespace == "" {
		cfg.Namespace = "tokenfuse"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Policy.Alarm != nil && cfg.TopicARN == "" {
		return nil, errors.New("spendalarm: the policy has an alarm, but there is no topic to publish to")
	}
	h := &Handler{Config: cfg, fuse: fuse.NewWriter(cfg.State, cfg.Table, cfg.Now), pools: map[string]*bucket.Pool{}}
	buckets, err := bucket.New(cfg.State, bucket.Options{Table: cfg.Table, LongestPeriod: cfg.Policy.LongestPeriod() + time.Minute, Now: cfg.Now})
	if err != nil {
		return nil, err
	}
	for name, p := range cfg.Policy.Pools {
		if h.pools[name], err = buckets.NewPool(keys.Pool.Key(name), int64(p.Ceiling), p.Period, bucket.PoolOptions{}); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Run is one tick: it sums, compares, pages if that is due, and puts the metrics. The
// Result is as complete as it could be made, also with an error.
func (h *Handler) Run(ctx context.Context) (Result, error) {
	now := h.Now().UTC()
	sum, err := h.Ledger.Sum(ctx, now.Add(-window), now)
	if err != nil {
		return Result{}, fmt.Errorf("summing the last hour: %w", err)
	}
	r := newResult(now, sum)
	var errs []error
	if h.Policy.Alarm != nil {
		errs = append(errs, h.watch(ctx, now, sum, &r))
	}
	if !r.Outdated { // else the newer run's metrics stand
		errs = append(errs, h.measure(ctx, sum, r))
	}
	err = errors.Join(errs...)
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelError
	}
	h.Log.LogAttrs(ctx, level, "spendalarm", slog.String("usd", r.SpendUSD), slog.String("threshold_usd", r.ThresholdUSD),
		slog.String("state", r.State), slog.String("paged", r.Paged), slog.String("fuse", r.Fuse), slog.Bool("outdated", r.Outdated), slog.Any("error", err))
	return r, err
}
