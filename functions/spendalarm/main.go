// Command spendalarm is the Lambda function that watches the money, every 5 minutes.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/functions/spendalarm/handler"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	h, err := build(context.Background())
	if err != nil {
		slog.Error("spendalarm cannot start", "error", err)
		os.Exit(1)
	}
	// The event says nothing that the clock does not.
	lambda.Start(h.Run)
}

// build makes the handler from the environment: LIMITS_TABLE and SPEND_TABLE name the
// tables, TOPIC_ARN the topic of the pages, TOKENFUSE_CONFIG the configuration's file
// (default tokenfuse.yaml), TOKENFUSE_ENDPOINT the address of the admin routes as
// people reach it, for the commands in the pages (optional).
func build(ctx context.Context) (*handler.Handler, error) {
	limits, err := need("LIMITS_TABLE", "names the table of the fuse and of the alarm's state")
	spend, err2 := need("SPEND_TABLE", "names the table of the spend events")
	topic, err3 := need("TOPIC_ARN", "is where pages go")
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	p, err := policy.Load(cmp.Or(os.Getenv("TOKENFUSE_CONFIG"), "tokenfuse.yaml"))
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	db := dynamodb.NewFromConfig(cfg)
	events, err := ledger.New(db, ledger.Options{Table: spend, LongestCall: p.LongestCall()})
	if err != nil {
		return nil, err
	}
	return handler.New(handler.Config{
		Policy: p, Ledger: events, State: db, Table: limits,
		SNS: sns.NewFromConfig(cfg), TopicARN: topic, CloudWatch: cloudwatch.NewFromConfig(cfg),
		Fuse: fuse.NewWriter(db, limits, time.Now), Endpoint: os.Getenv("TOKENFUSE_ENDPOINT"),
	})
}

func need(name, what string) (string, error) {
	if v := os.Getenv(name); v != "" {
		return v, nil
	}
	return "", fmt.Errorf("%s is not set: it %s", name, what)
}
