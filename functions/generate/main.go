// Command generate is the Lambda function in front of the AI feature.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/secret"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// warmTime bounds what a start waits for connections that the first call could open by
// itself.
const warmTime = time.Second

func main() { environ.Serve(build) }

// build makes the handler from the environment: LIMITS_TABLE names the table of
// the buckets, SPEND_TABLE that of the spend events, TOKENFUSE_CONFIG the
// configuration's file, METRICS_NAMESPACE where its metrics go.
func build(ctx context.Context) (any, error) {
	limits, limitsErr := environ.Need("LIMITS_TABLE", "names the table of the buckets")
	spend, spendErr := environ.Need("SPEND_TABLE", "names the table of the spend events")
	p, policyErr := policy.Load(environ.Config())
	cfg, awsErr := environ.AWS()
	if err := errors.Join(limitsErr, spendErr, policyErr, awsErr); err != nil {
		return nil, err
	}
	db := dynamodb.NewFromConfig(cfg)
	events, err := ledger.New(db, ledger.Options{Table: spend})
	if err != nil {
		return nil, err
	}
	starting, cancel := environ.Starting(ctx)
	defer cancel()
	setting := fuse.NewReader(db, limits, time.Now)
	setting.Begin(starting) // which connects to the store while the secrets are read
	var secrets func(context.Context, policy.Secret) (string, error)
	environ.Waiting(func() { secrets = secret.NewReader(cfg).Fetch(starting, p.Secrets()) })
	parts := chatapi.Parts{
		Policy:   p,
		DynamoDB: db,
		Fuse:     setting,
		Ledger:   events,
		Bucket:   bucket.Options{Table: limits},
		Secret:   secrets,
		AWS:      cfg,
		Log:      slog.Default(),
		Metrics:  emf.New(os.Stdout, environ.MetricsNamespace(), time.Now),
		Version:  os.Getenv("AWS_LAMBDA_FUNCTION_VERSION"),
	}
	h, err := chatapi.BuildRenewing(ctx, parts, secret.NewReader(cfg).Fetch)
	if err != nil {
		return nil, err
	}
	warm, done := context.WithTimeout(starting, warmTime)
	defer done()
	environ.Waiting(func() { h.Warm(warm) })
	if environ.Many() {
		go h.Keep(ctx)
	}
	calls := &lambdahttp.Calls{}
	return environ.Draining{Handler: calls.Watch(lambdahttp.Stream(h)), Idle: calls.Wait, Stopped: chatapi.ErrStopped, Close: h.Close}, nil
}
