// Command clearlimit is the Lambda function behind the admin routes.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/functions/clearlimit/handler"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/secret"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	h, err := build(context.Background())
	if err != nil {
		slog.Error("clearlimit cannot start", "error", err)
		os.Exit(1)
	}
	lambda.Start(handler.Lambda(h))
}

// build makes the handler from the environment: TOKENFUSE_CONFIG is the
// configuration's file (default tokenfuse.yaml), LIMITS_TABLE the table of the
// buckets. Both must be those of generate.
func build(ctx context.Context) (*handler.Handler, error) {
	table := os.Getenv("LIMITS_TABLE")
	if table == "" {
		return nil, fmt.Errorf("LIMITS_TABLE is not set: it names the table of the buckets")
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
	return handler.Build(ctx, handler.Parts{
		Policy:   p,
		DynamoDB: dynamodb.NewFromConfig(cfg),
		Bucket:   bucket.Options{Table: table},
		Secret:   secret.Env,
		Log:      slog.Default(),
	})
}
