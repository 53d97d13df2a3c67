package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/functions/clearlimit/admin"
	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/functions/spendalarm/alarm"
	"github.com/tokenfuse/tokenfuse/internal/denials"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/secret"
	"github.com/tokenfuse/tokenfuse/internal/webhook"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// startTime bounds what waits for the network before anything is served.
const startTime = 30 * time.Second

// served is the functions in one process.
type served struct {
	chat  *chatapi.Renewing
	admin *secret.Renewing[*admin.Handler] // nil: nobody has a key
	pages *secret.Renewing[alarm.SNS]
	alarm *alarm.Handler
	check func(context.Context) error // whether the store is within reach
	log   *slog.Logger
}

// build makes the functions of a configuration as their Lambda functions do, on what AWS's
// tools find: a task's role, an instance's, or keys in the environment.
func (c *serveCommand) build(ctx context.Context, s streams, p *policy.Policy, log *slog.Logger) (*served, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	cfg, err := serveConfig(ctx)
	if err != nil {
		return nil, err
	}
	db := dynamodb.NewFromConfig(cfg)
	if err := c.openStore(ctx, db); err != nil {
		return nil, err
	}
	events, err := ledger.New(db, ledger.Options{Table: c.SpendTable, Log: log})
	if err != nil {
		return nil, err
	}
	// Nobody but the process itself makes sums of its metrics, if nobody takes them.
	denied := denials.NewHere(time.Now)
	var gaugesTo *emf.Writer
	metrics := emf.NewOnly(denials.Metric, denied, environ.MetricsNamespace(), time.Now)
	if c.Metrics == "emf" {
		gaugesTo = emf.New(s.out, environ.MetricsNamespace(), time.Now)
		metrics = emf.New(io.MultiWriter(s.out, denied), environ.MetricsNamespace(), time.Now)
	}
	fetch := secret.NewReader(cfg).Fetch
	ofAdmins, ofPages := adminSecrets(p), pageSecrets(p)
	secrets := fetch(ctx, slices.Concat(p.Secrets(), ofAdmins, ofPages))
	lasting := context.WithoutCancel(ctx)
	table := bucket.Options{Table: c.LimitsTable}
	f := &served{log: log, check: func(ctx context.Context) error { return reach(ctx, db, c.LimitsTable) }}
	f.chat, err = chatapi.BuildRenewing(lasting, chatapi.Parts{Policy: p, DynamoDB: db, Ledger: events, Bucket: table,
		Secret: secrets, AWS: cfg, Log: log, Metrics: metrics}, fetch)
	if err != nil {
		return nil, err
	}
	if len(ofAdmins) == 0 {
		log.Warn("no admin routes are served: admin.keys of the configuration has nobody's key")
	} else if f.admin, err = secret.NewRenewing(lasting, ofAdmins, secrets, fetch, func(ctx context.Context, told secret.Read) (*admin.Handler, error) {
		return admin.Build(ctx, admin.Parts{Policy: p, DynamoDB: db, Bucket: table, Spend: c.SpendTable, Secret: told, Log: log, ByKey: true, Denials: denied.Count, Apart: true})
	}); err != nil {
		return nil, err
	}
	topic := cmp.Or(os.Getenv("TOPIC_ARN"), "none") // of SNS; a webhook has none
	if f.pages, err = secret.NewRenewing(lasting, ofPages, secrets, fetch, func(ctx context.Context, told secret.Read) (alarm.SNS, error) {
		return pager(ctx, cfg, p, told, log)
	}); err != nil {
		return nil, err
	}
	f.alarm, err = alarm.New(alarm.Config{Policy: p, Ledger: events, State: db, Table: c.LimitsTable, Log: log,
		SNS: newest{f.pages}, TopicARN: topic, CloudWatch: gauges{gaugesTo}, Endpoint: os.Getenv("TOKENFUSE_ENDPOINT")})
	if err != nil {
		return nil, err
	}
	f.chat.Warm(ctx)
	return f, nil
}

// serveConfig is what AWS tools find, with a client for many calls at a time.
func serveConfig(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(environ.HTTPClient()))
	if err != nil {
		return cfg, fmt.Errorf("the AWS configuration cannot be read: %w", err)
	}
	if cfg.Region == "" {
		if cfg.BaseEndpoint == nil && os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
			return cfg, errors.New("AWS_REGION is not set")
		}
		cfg.Region = engine.Region // a compatible store has none
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return cfg, errors.New("no AWS credentials were found: give the task or the machine a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (a compatible store takes any)")
	}
	return cfg, nil
}

// openStore makes the tables if that is wanted, and fails early where they are not.
func (c *serveCommand) openStore(ctx context.Context, db *dynamodb.Client) error {
	if c.CreateTables {
		err := errors.Join(engine.CreateLimitsTable(ctx, db, c.LimitsTable), engine.CreateSpendTable(ctx, db, c.SpendTable))
		for _, table := range []string{c.LimitsTable, c.SpendTable} {
			if err == nil {
				err = expire(ctx, db, table)
			}
		}
		if err != nil {
			return fmt.Errorf("--create-tables: %w", err)
		}
	}
	if err := reach(ctx, db, c.LimitsTable); err != nil {
		return fmt.Errorf("the table %s cannot be read: %w", c.LimitsTable, err)
	}
	return nil
}

// expire lets a table that is there drop its old items, unless it does so already or
// knows no such thing.
func expire(ctx context.Context, db *dynamodb.Client, table string) error {
	if err := dynamodb.NewTableExistsWaiter(db).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, startTime); err != nil {
		return err
	}
	_, err := db.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("expires"), Enabled: aws.Bool(true)}})
	if err != nil {
		slog.Warn("old items stay in the table, unless it drops them already", "table", table, "error", err)
	}
	return nil
}

// reach reads an item that need not be there.
func reach(ctx context.Context, db *dynamodb.Client, table string) error {
	_, err := db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "fuse"}}})
	return err
}

// adminSecrets are the keys of administrators.
func adminSecrets(p *policy.Policy) (all []policy.Secret) {
	if p.Admin != nil {
		for _, k := range p.Admin.Keys {
			all = append(all, k.Secrets...)
		}
	}
	return all
}

// pageSecrets are those of the webhook.
func pageSecrets(p *policy.Policy) (all []policy.Secret) {
	if p.Alarm != nil && p.Alarm.Webhook != nil {
		all = append(all, p.Alarm.Webhook.URL)
		if p.Alarm.Webhook.Secret != nil {
			all = append(all, *p.Alarm.Webhook.Secret)
		}
	}
	return all
}

// newest pages by what there is now.
type newest struct{ pages *secret.Renewing[alarm.SNS] }

func (n newest) Publish(ctx context.Context, in *sns.PublishInput, o ...func(*sns.Options)) (*sns.PublishOutput, error) {
	return n.pages.Now().Publish(ctx, in, o...)
}

// pager is where pages go: to the webhook of the configuration, else to the topic that
// TOPIC_ARN names, else to the log alone.
func pager(ctx context.Context, cfg aws.Config, p *policy.Policy, read secret.Read, log *slog.Logger) (alarm.SNS, error) {
	if p.Alarm != nil && p.Alarm.Webhook != nil {
		address, err := read(ctx, p.Alarm.Webhook.URL)
		var key string
		if s := p.Alarm.Webhook.Secret; s != nil && err == nil {
			key, err = read(ctx, *s)
		}
		if err != nil {
			return nil, fmt.Errorf("alarm.webhook: %w", err)
		}
		pages, err := webhook.New(address, key)
		if err != nil {
			return nil, fmt.Errorf("alarm.webhook.url: %w", err)
		}
		return pages, nil
	}
	if os.Getenv("TOPIC_ARN") != "" {
		return sns.NewFromConfig(cfg), nil
	}
	if p.Alarm != nil {
		log.Warn("pages go to this log alone: the configuration has no alarm.webhook, and TOPIC_ARN is not set")
	}
	return toLog{log}, nil
}

// toLog takes pages for which there is no other place.
type toLog struct{ log *slog.Logger }

func (l toLog) Publish(_ context.Context, in *sns.PublishInput, _ ...func(*sns.Options)) (*sns.PublishOutput, error) {
	l.log.Error("page", "subject", *in.Subject)
	return &sns.PublishOutput{}, nil
}

// gauges takes spendalarm's metrics in CloudWatch's place. A nil writer drops them.
type gauges struct{ to *emf.Writer }

func (g gauges) PutMetricData(_ context.Context, in *cloudwatch.PutMetricDataInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.PutMetricDataOutput, error) {
	if g.to != nil {
		for _, d := range in.MetricData { // a line each: a line has each name once
			group := emf.Group{Metrics: []emf.Metric{{Name: *d.MetricName, Unit: emf.Unit(d.Unit), Value: *d.Value}}}
			for _, dimension := range d.Dimensions {
				group.Dimensions = append(group.Dimensions, emf.Dimension{Name: *dimension.Name, Value: *dimension.Value})
			}
			g.to.Write(group)
		}
	}
	return &cloudwatch.PutMetricDataOutput{}, nil
}
