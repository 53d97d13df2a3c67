// Command generate is the Lambda function in front of the AI feature.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/functions/generate/handler"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/secret"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	h, err := build(context.Background())
	if err != nil {
		slog.Error("generate cannot start", "error", err)
		os.Exit(1)
	}
	lambda.Start(lambdahttp.Stream(h))
}

// build makes the handler from the environment: TOKENFUSE_CONFIG is the
// configuration's file (default tokenfuse.yaml), LIMITS_TABLE the table of the
// buckets, SPEND_TABLE that of the spend events.
func build(ctx context.Context) (*handler.Handler, error) {
	table := os.Getenv("LIMITS_TABLE")
	if table == "" {
		return nil, fmt.Errorf("LIMITS_TABLE is not set: it names the table of the buckets")
	}
	spend := os.Getenv("SPEND_TABLE")
	if spend == "" {
		return nil, fmt.Errorf("SPEND_TABLE is not set: it names the table of the spend events")
	}
	file := os.Getenv("TOKENFUSE_CONFIG")
	if file == "" {
		file = "tokenfuse.yaml"
	}
	p, err := policy.Load(file)
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
	return handler.Build(ctx, handler.Parts{
		Policy:   p,
		DynamoDB: db,
		Ledger:   events,
		Bucket:   bucket.Options{Table: table},
		Secret:   secret.Env,
		Log:      slog.Default(),
		Metrics:  emf.New(os.Stdout, "tokenfuse", time.Now),
	})
}
