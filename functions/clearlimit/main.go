// Command clearlimit is the Lambda function behind the admin routes.
package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/functions/clearlimit/admin"
	"github.com/tokenfuse/tokenfuse/internal/denials"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/secret"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

func main() { environ.Serve(build) }

// build makes the handler from the environment: LIMITS_TABLE names the table of
// the buckets, SPEND_TABLE that of the spend events, METRICS_NAMESPACE where the metrics
// are, TOKENFUSE_CONFIG the configuration's file. All must be those of generate.
func build(ctx context.Context) (any, error) {
	spend, spendErr := environ.Need("SPEND_TABLE", "names the table of the spend events")
	limits, limitsErr := environ.Need("LIMITS_TABLE", "names the table of the buckets")
	p, policyErr := policy.LoadUncounted(environ.Config())
	cfg, awsErr := environ.AWS()
	if err := errors.Join(limitsErr, spendErr, policyErr, awsErr); err != nil {
		return nil, err
	}
	secrets := secret.NewReader(cfg)
	h, err := admin.Build(ctx, admin.Parts{
		Policy:   p,
		DynamoDB: dynamodb.NewFromConfig(cfg),
		Bucket:   bucket.Options{Table: limits},
		Spend:    spend,
		Denials:  denials.NewReader(cfg, environ.MetricsNamespace()).Count,
		Secret:   secrets.Read,
		Log:      slog.Default(),
	})
	return admin.Lambda(h), err
}
