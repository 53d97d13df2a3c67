package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/local/upstream"
)

type devCommand struct {
	Listen       string        `default:"127.0.0.1:8787" help:"Address to serve on; port 0 takes a free one."`
	Config       string        `default:"tokenfuse.yaml" help:"The configuration's file."`
	Data         string        `help:"Folder that keeps the data (default: memory)." placeholder:"DIR" xor:"store"`
	DynamoDB     string        `name:"dynamodb" help:"URL of a DynamoDB-compatible engine to use instead of starting one." placeholder:"URL" xor:"store"`
	FakeProvider bool          `help:"Let the built-in model answer for every provider, also where a key is set."`
	AlarmEvery   time.Duration `default:"5m" help:"How often spendalarm runs."`
	Instances    int           `default:"1" help:"Copies of generate that share nothing in memory, as Lambda would run them."`
	Verbose      bool          `help:"Show the function's log."`
}

// The pace of the built-in model.
const (
	firstToken = 300 * time.Millisecond
	perToken   = 15 * time.Millisecond
)

// Who dev's issuer is, and for whom its tokens are. The issuer's name does not tell where
// dev serves, so that a token outlives a change of the port.
const (
	devIssuer = "https://issuer.tokenfuse-dev.invalid"
	audience  = "tokenfuse-dev"
)

// stopTimeout bounds the wait for calls in flight when dev stops.
const stopTimeout = 20 * time.Second

func (c *devCommand) Run(ctx context.Context, s streams) error {
	if c.Instances < 1 {
		return errors.New("--instances must be at least 1")
	}
	if c.AlarmEvery <= 0 {
		return errors.New("--alarm-every must be above 0")
	}
	answers := s
	if s.json {
		s.out = io.Discard // what people read
	}
	read := c.contents()
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

	secret, err := keptSecret(c.Data)
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out, "tokenfuse dev: nothing leaves this machine unless a provider key is set, or Bedrock is configured.")
	on, err := stage.New(ctx, stage.Options{
		Store: c.DynamoDB, Data: c.Data, Limits: "tokenfuse-limits", Spend: "tokenfuse-spend",
		Upstream: upstream.Options{FirstToken: firstToken, PerToken: perToken},
		Issuer:   devIssuer, Audience: audience, Seed: secret.derive("issuer", ed25519.SeedSize),
	})
	if err != nil {
		return err
	}
	defer on.Close()
	fmt.Fprintf(s.out, "  store      %s\n", on.Store)
	c.showProviders(s.out, p)
	spend, err := ledger.New(on.DynamoDB(), ledger.Options{Table: on.Spend, Log: log})
	if err != nil {
		return err
	}
	ground := &ground{command: c, out: s.out, on: on, spend: spend, secret: secret, keys: secret.keyPair(), url: url, log: log}
	functions := new(generations)
	apply := func(p *policy.Policy) error {
		next, err := ground.build(ctx, p)
		if err == nil {
			functions.replace(next)
		}
		return err
	}
	if err := apply(p); err != nil {
		return err
	}
	watch := c.watch(ctx, functions, log)

	routes := http.NewServeMux()
	routes.Handle("/dev/jwks.json", on.Issuer.JWKS())
	routes.Handle("/dev/token", on.Issuer.Tokens())
	routes.Handle("/dev/spend", spendRoute(spend))
	routes.Handle("/dev/inbox", on.Inbox)
	routes.Handle("POST /dev/alarm", watch)
	chat := functions.serve(func(g *generation) http.Handler { return g.chat })
	routes.Handle("/", chat) // see devRoutes
	routes.Handle("/admin/", functions.serve(func(g *generation) http.Handler { return g.admin }))
	devPages(routes, functions, on.ModelURL())
	server := &http.Server{Handler: devRoutes(chat, routes), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	fmt.Fprintf(s.out, "  instances  %d of generate\n", c.Instances)
	showFeatures(s.out, p)
	fmt.Fprintf(s.out, "  page       %s/ (to try it in a browser)\n", url)
	if err := tryThis(s.out, ground, p); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "ready %s\n", url)
	if s.json {
		keys := ground.keys
		if err := answers.answer(map[string]string{"url": url, "store": on.Store, "aws_access_key_id": keys.id, "aws_secret_access_key": keys.secret}); err != nil {
			return err
		}
	}
	reloading := make(chan struct{})
	go func() {
		defer close(reloading)
		if read != nil {
			c.reload(ctx, s, read, apply)
		}
	}()

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	<-reloading
	watch.stop()
	fmt.Fprintln(s.out, "stopping: calls in flight finish and settle")
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(functions.close(ending), server.Shutdown(ending))
}

// showFeatures names what can be called.
func showFeatures(w io.Writer, p *policy.Policy) {
	fmt.Fprintf(w, "  features   %v\n", slices.Sorted(maps.Keys(p.Features)))
}

// reachable is an address at which this machine reaches a listener.
func reachable(a net.Addr) string {
	tcp := a.(*net.TCPAddr)
	if tcp.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return tcp.String()
}
