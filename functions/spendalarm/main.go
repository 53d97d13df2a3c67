// Command spendalarm is the Lambda function that watches the money, every 5 minutes.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/functions/spendalarm/alarm"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

func main() { environ.Serve(build) }

// build makes the handler from the environment: LIMITS_TABLE and SPEND_TABLE name the
// tables, TOPIC_ARN the topic of the pages, TOKENFUSE_CONFIG the configuration's file,
// TOKENFUSE_ENDPOINT the address of the admin routes as people reach it, for the
// commands in the pages (optional), METRICS_NAMESPACE where its metrics go.
func build(ctx context.Context) (any, error) {
	limits, limitsErr := environ.Need("LIMITS_TABLE", "names the table of the fuse and of the alarm's state")
	spend, spendErr := environ.Need("SPEND_TABLE", "names the table of the spend events")
	topic, topicErr := environ.Need("TOPIC_ARN", "is where pages go")
	p, policyErr := policy.LoadUncounted(environ.Config())
	cfg, awsErr := environ.AWS()
	if err := errors.Join(limitsErr, spendErr, topicErr, policyErr, awsErr); err != nil {
		return nil, err
	}
	db := dynamodb.NewFromConfig(cfg)
	events, err := ledger.New(db, ledger.Options{Table: spend})
	if err != nil {
		return nil, err
	}
	h, err := alarm.New(alarm.Config{
		Policy: p, Ledger: events, State: db, Table: limits,
		SNS: sns.NewFromConfig(cfg), TopicARN: topic, CloudWatch: cloudwatch.NewFromConfig(cfg),
		Endpoint: os.Getenv("TOKENFUSE_ENDPOINT"), Namespace: environ.MetricsNamespace(),
	})
	if err != nil {
		return nil, err
	}
	return h.Run, nil // the event says nothing that the clock does not
}
