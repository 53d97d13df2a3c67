package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/secret"
	"github.com/tokenfuse/tokenfuse/local/gateway"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

type devCommand struct {
	Listen     string        `default:"127.0.0.1:8787" help:"Address to serve on; port 0 takes a free one."`
	Config     string        `default:"tokenfuse.yaml" help:"The configuration's file."`
	Data       string        `help:"Folder that keeps the data (default: memory)." placeholder:"DIR" xor:"store"`
	DynamoDB   string        `name:"dynamodb" help:"URL of a DynamoDB-compatible engine to use instead of starting one." placeholder:"URL" xor:"store"`
	AlarmEvery time.Duration `default:"5m" help:"How often spendalarm runs."`
	Instances  int           `default:"1" help:"Copies of generate that share nothing in memory, as Lambda would run them."`
	Verbose    bool          `help:"Show the function's log."`
}

// The pace of the built-in model.
const (
	firstToken = 300 * time.Millisecond
	perToken   = 15 * time.Millisecond
)

// audience is for whom the tokens of dev's issuer are.
const audience = "tokenfuse-dev"

// stopTimeout bounds the wait for calls in flight when dev stops.
const stopTimeout = 20 * time.Second

func (c *devCommand) Run(ctx context.Context, s streams) error {
	if c.Instances < 1 {
		return errors.New("--instances must be at least 1")
	}
	p, err := load(c.Config, s)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	url := "http://" + reachable(listener.Addr())

	log := slog.New(slog.DiscardHandler)
	if c.Verbose {
		log = environ.NewLog(s.err)
	}
	slog.SetDefault(log)

	fmt.Fprintln(s.out, "tokenfuse dev: nothing leaves this machine unless a provider key is set, or Bedrock is configured.")
	on, err := stage.New(ctx, stage.Options{
		Store: c.DynamoDB, Data: c.Data, Limits: "tokenfuse-limits", Spend: "tokenfuse-spend",
		Upstream: upstream.Options{FirstToken: firstToken, PerToken: perToken}, Issuer: url, Audience: audience,
	})
	if err != nil {
		return err
	}
	defer on.Close()
	fmt.Fprintf(s.out, "  store      %s\n", on.Store)
	showProviders(s.out, p)
	p = p.Locally(policy.Local{
		Auth:     policy.Auth{Issuer: url, Audience: audience, JWKSURL: on.KeysURL(), PlanClaim: "plan"},
		AdminARN: devARN, ModelURL: on.ModelURL(), Replaces: withoutKey,
	})

	instances := make([]gateway.Function, c.Instances)
	secrets, err := c.secrets()
	if err != nil {
		return err
	}
	spend, err := ledger.New(on.DynamoDB(), ledger.Options{Table: on.Spend, Log: log})
	if err != nil {
		return err
	}
	bedrock, err := bedrockConfig(ctx, p)
	if err != nil {
		return err
	}
	for i := range instances {
		h, err := chatapi.Build(ctx, chatapi.Parts{
			Policy: p, DynamoDB: on.DynamoDB(), Bucket: bucket.Options{Table: on.Limits}, Secret: secrets, Log: log, Ledger: spend,
			AWS:              bedrock,
			RefusedToken:     refusedTokens(s.out),
			AllowTestSecrets: true, // there is nobody to keep out, and challenge providers hand them out for this
		})
		if err != nil {
			return err
		}
		instances[i] = lambdahttp.Stream(h)
	}
	front := gateway.New(gateway.Options{Timeout: p.LongestCall()}, instances...)

	watch, err := c.watch(ctx, p, on, spend, url, log)
	if err != nil {
		return err
	}
	keys := newKeyPair()
	admin, err := adminRoutes(ctx, p, on, secrets, keys, log)
	if err != nil {
		return err
	}

	routes := http.NewServeMux()
	routes.Handle("/", front) // see devRoutes
	routes.Handle("/dev/jwks.json", on.Issuer.JWKS())
	routes.Handle("/dev/token", on.Issuer.Tokens())
	routes.Handle("/dev/spend", spendRoute(spend))
	routes.Handle("/dev/inbox", on.Inbox)
	routes.Handle("POST /dev/alarm", watch)
	routes.Handle("/admin/", admin)
	server := &http.Server{Handler: devRoutes(front, routes), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	fmt.Fprintf(s.out, "  instances  %d of generate\n", c.Instances)
	fmt.Fprintf(s.out, "  features   %v\n\n", slices.Sorted(maps.Keys(p.Features)))
	tryThis(s.out, url, p)
	fmt.Fprintf(s.out, "For the admin commands (clear-limit, limits, fuse):\nAWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=%s\n", keys.id, keys.secret)
	fmt.Fprintf(s.out, "ready %s\n", url)

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	watch.stop()
	fmt.Fprintln(s.out, "stopping: calls in flight finish and settle")
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(front.Close(ending), admin.Close(ending), server.Shutdown(ending))
}

// bedrockConfig is what every AWS tool finds, if there is Bedrock to call with it.
func bedrockConfig(ctx context.Context, p *policy.Policy) (aws.Config, error) {
	for _, provider := range p.UsedProviders() {
		if provider.Kind == kind.Bedrock {
			return config.LoadDefaultConfig(ctx)
		}
	}
	return aws.Config{}, nil
}

// withoutKey reports whether the built-in model stands in for a provider: its key is not
// set. A provider that wants no key is called as it is.
func withoutKey(p *policy.Provider) bool {
	return p.APIKey != nil && (p.APIKey.Env == "" || os.Getenv(p.APIKey.Env) == "")
}

// showProviders says which providers are called, and for which the built-in model stands
// in.
func showProviders(w io.Writer, p *policy.Policy) {
	for _, name := range slices.Sorted(maps.Keys(p.Providers)) {
		provider := p.Providers[name]
		if withoutKey(provider) {
			fmt.Fprintf(w, "  provider   %s: built-in, since %s is not set\n", name, keptIn(provider.APIKey))
			continue
		}
		fmt.Fprintf(w, "  provider   %s: %s\n", name, cmp.Or(provider.BaseURL, string(provider.Kind)))
	}
}

func keptIn(s *policy.Secret) string {
	if s.Env != "" {
		return s.Env
	}
	return s.SSM + s.Secret
}

// secrets reads secrets from the environment. Those that are not there are made
// up, the same for all instances, and kept with the data: the key of anonymous
// callers' limits is one.
func (c *devCommand) secrets() (func(context.Context, policy.Secret) (string, error), error) {
	madeUp := rand.Text()
	if c.Data != "" {
		file := filepath.Join(c.Data, "secret")
		kept, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			kept, err = []byte(madeUp), os.WriteFile(file, []byte(madeUp), 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
		madeUp = string(kept)
	}
	return func(ctx context.Context, s policy.Secret) (string, error) {
		if v, err := secret.Env(ctx, s); err == nil {
			return v, nil
		}
		return madeUp, nil
	}, nil
}

// reachable is an address at which this machine reaches a listener.
func reachable(a net.Addr) string {
	tcp := a.(*net.TCPAddr)
	if tcp.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return tcp.String()
}
