package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/functions/clearlimit/admin"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/gateway"
	"github.com/tokenfuse/tokenfuse/local/sigv4"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// devARN is who signs with dev's key pair, and who is on the allow-list if there is one.
const devARN = "arn:aws:iam::000000000000:role/tokenfuse-dev"

// keyPair is what signs requests to dev's admin routes.
type keyPair struct{ id, secret string }

func newKeyPair() keyPair { return keyPair{"AKIA" + rand.Text()[:16], rand.Text() + rand.Text()[:14]} }

// adminRoutes serves clearlimit behind the gateway's stand-in, which checks
// signatures as API Gateway does.
func adminRoutes(ctx context.Context, p *policy.Policy, on *stage.Stage, secrets func(context.Context, policy.Secret) (string, error), keys keyPair, log *slog.Logger) (*gateway.Gateway, error) {
	h, err := admin.Build(ctx, admin.Parts{Policy: p, DynamoDB: on.DynamoDB(),
		Bucket: bucket.Options{Table: on.Limits}, Secret: secrets, Log: log})
	if err != nil {
		return nil, err
	}
	known := func(id string) (secret, arn string, ok bool) { return keys.secret, devARN, id == keys.id }
	return gateway.New(gateway.Options{Identity: sigv4.Identity(known, time.Now)}, gateway.Buffered(admin.Lambda(h))), nil
}
