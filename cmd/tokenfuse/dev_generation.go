package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/functions/clearlimit/admin"
	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/functions/spendalarm/alarm"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/gateway"
	"github.com/tokenfuse/tokenfuse/local/sigv4"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// ground is what stays when the configuration changes.
type ground struct {
	command *devCommand
	out     io.Writer // for whoever runs dev
	on      *stage.Stage
	spend   *ledger.Ledger
	secret  devSecret
	keys    keyPair
	url     string // where dev serves
	log     *slog.Logger
}

// generation is the functions with one configuration.
type generation struct {
	policy      *policy.Policy
	chat, admin *gateway.Gateway
	own         *gateway.Gateway // admin, for the pages of dev: its calls need no signature
	alarm       *alarm.Handler
	calls       sync.WaitGroup     // requests that came to it
	end         context.CancelFunc // of what it does by itself
}

// build makes the functions of a configuration. ctx bounds their lives.
func (g *ground) build(ctx context.Context, p *policy.Policy) (made *generation, err error) {
	p = p.Locally(policy.Local{
		Auth:     policy.Auth{Issuer: devIssuer, Audience: audience, JWKSURL: g.on.KeysURL(), PlanClaim: "plan"},
		AdminARN: devARN, ModelURL: g.on.ModelURL(),
		Replaces: func(p *policy.Provider) bool { return g.command.whyBuiltIn(p) != "" },
	})
	ctx, end := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			end()
		}
	}()
	made = &generation{policy: p, end: end}
	bedrock, err := bedrockConfig(ctx, p)
	if err != nil {
		return nil, err
	}
	table := bucket.Options{Table: g.on.Limits}
	refused := refusedOrigins(g.out, g.command.Config, p)
	instances := make([]gateway.Function, g.command.Instances)
	for i := range instances {
		h, err := chatapi.Build(ctx, chatapi.Parts{
			Policy: p, DynamoDB: g.on.DynamoDB(), Bucket: table, Secret: g.secret.ofPolicy, Log: g.log, Ledger: g.spend, AWS: bedrock,
			Metrics:          emf.New(g.on.Denials, "tokenfuse", time.Now),
			RefusedToken:     refusedTokens(g.out),
			RefusedOrigin:    refused,
			AllowTestSecrets: true, // there is nobody to keep out, and challenge providers hand them out for this
		})
		if err != nil {
			return nil, err
		}
		instances[i] = lambdahttp.Stream(h)
	}
	g.secret.showBackends(ctx, g.out, p)
	made.chat = gateway.New(gateway.Options{Timeout: p.LongestCall()}, instances...)

	admins, err := admin.Build(ctx, admin.Parts{Policy: p, DynamoDB: g.on.DynamoDB(), Bucket: table, Secret: g.secret.ofPolicy, Log: g.log,
		Spend: g.on.Spend, Denials: g.on.Denials.Count})
	if err != nil {
		return nil, err
	}
	// It checks signatures as API Gateway does.
	made.admin = gateway.New(gateway.Options{Identity: sigv4.Identity(g.keys.known, time.Now)}, gateway.Buffered(admin.Lambda(admins)))
	made.own = gateway.New(gateway.Options{Identity: func(*http.Request) (events.APIGatewayRequestIdentity, error) {
		return events.APIGatewayRequestIdentity{UserArn: devARN}, nil
	}}, gateway.Buffered(admin.Lambda(admins)))

	made.alarm, err = alarm.New(alarm.Config{
		Policy: p, Ledger: g.spend, State: g.on.DynamoDB(), Table: g.on.Limits, Endpoint: g.url, Log: g.log,
		SNS: sns.NewFromConfig(g.on.AWS()), TopicARN: stage.TopicARN, CloudWatch: cloudwatch.NewFromConfig(g.on.AWS()),
	})
	return made, err
}

// generations are the one that takes requests, and those before it, as long as calls are
// under way that came to them.
type generations struct {
	mu       sync.RWMutex
	current  *generation
	retiring sync.WaitGroup
}

// replace lets all that comes from now on go to next. The one before ends as a container of
// Lambda's does: what it has on lease of a pool counts as spent.
func (g *generations) replace(next *generation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.current; last != nil {
		g.retiring.Go(func() {
			last.calls.Wait()
			_ = last.close(context.Background())
		})
	}
	g.current = next
}

// close waits until the calls that have ended for their callers have ended, too.
func (g *generation) close(ctx context.Context) error {
	defer g.end()
	return errors.Join(g.chat.Close(ctx), g.admin.Close(ctx), g.own.Close(ctx))
}

// close lets no call begin and waits for all that have begun.
func (g *generations) close(ctx context.Context) error {
	retired := make(chan struct{})
	go func() {
		g.retiring.Wait()
		close(retired)
	}()
	err := g.now().close(ctx)
	select {
	case <-retired:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

func (g *generations) now() *generation {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.current
}

// serve serves a part of the generation that is current when a request comes.
func (g *generations) serve(part func(*generation) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.RLock()
		current := g.current
		current.calls.Add(1) // before it can be replaced, so that nobody closes it under the request
		g.mu.RUnlock()
		defer current.calls.Done()
		part(current).ServeHTTP(w, r)
	})
}
