// Package stage is what stands around the functions on one machine: a store with the
// two tables, a model, an issuer of tokens, and an inbox for pages and metrics. dev, the
// bench and tests put the functions on it.
//
// Its address is on loopback. Whoever can reach it can be every user at once.
package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/denials"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/local/inbox"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/local/upstream"
)

// TopicARN is where pages go: the inbox takes every topic.
const TopicARN = "arn:aws:sns:us-east-1:000000000000:tokenfuse-local"

// keysPath is where the issuer's key set is.
const keysPath = "/dev/jwks.json"

// storeTimeout bounds the making of the tables.
const storeTimeout = 10 * time.Second

// Options say what the stage is made of. The names of the tables are required.
type Options struct {
	Store         string // URL of a DynamoDB-compatible engine; empty: the stage starts one
	Data          string // where the engine that it starts keeps its data; empty: in memory
	Limits, Spend string // the tables, which are made if they are not there

	Upstream upstream.Options
	Model    func(upstream http.Handler) http.Handler // what the model is; nil: the upstream

	Issuer   string           // URL of the issuer, the iss of its tokens; empty: the stage's own
	Seed     []byte           // of the issuer's key; nil: a fresh one
	Audience string           // of the issuer's tokens; empty: test
	Now      func() time.Time // of what arrives in the inbox; nil: time.Now
}

// Stage is what stands around the functions.
type Stage struct {
	URL           string // http://127.0.0.1:port, of all but the store
	Store         string // URL
	Limits, Spend string // tables

	Upstream *upstream.Upstream
	Issuer   *issuer.Issuer
	Inbox    *inbox.Inbox
	Denials  *denials.Here

	engine *engine.Engine // nil: somebody else's
	server *http.Server
}

// New sets the stage: all serves when it returns. ctx bounds that.
func New(ctx context.Context, opts Options) (*Stage, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Stage{
		URL: "http://" + listener.Addr().String(), Store: opts.Store, Limits: opts.Limits, Spend: opts.Spend,
		Upstream: upstream.New(opts.Upstream), Inbox: inbox.New(opts.Now), Denials: denials.NewHere(opts.Now), server: &http.Server{ReadHeaderTimeout: 10 * time.Second},
	}
	if err := errors.Join(s.openStore(ctx, opts.Data), s.openIssuer(opts)); err != nil {
		_ = listener.Close()
		s.Close()
		return nil, err
	}
	var model http.Handler = s.Upstream
	if opts.Model != nil {
		model = opts.Model(model)
	}
	routes := http.NewServeMux()
	routes.Handle("/v1/", model)
	routes.Handle(keysPath, s.Issuer.JWKS())
	routes.Handle("/", s.Inbox)
	s.server.Handler = routes
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

func (s *Stage) openStore(ctx context.Context, data string) error {
	if s.Store == "" {
		var err error
		if s.engine, err = engine.Start(ctx, engine.Options{DataDir: data}); err != nil {
			return err
		}
		s.Store = s.engine.URL
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	db := s.DynamoDB()
	if err := errors.Join(engine.CreateLimitsTable(ctx, db, s.Limits), engine.CreateSpendTable(ctx, db, s.Spend)); err != nil {
		return fmt.Errorf("the store at %s: %w", s.Store, err)
	}
	return nil
}

func (s *Stage) openIssuer(opts Options) (err error) {
	if opts.Issuer == "" {
		opts.Issuer = s.URL
	}
	if opts.Audience == "" {
		opts.Audience = "test"
	}
	s.Issuer, err = issuer.New(issuer.Options{URL: opts.Issuer, Audience: opts.Audience, Seed: opts.Seed})
	return err
}

// Close ends what New started. Calls that are under way are cut off.
func (s *Stage) Close() {
	_ = s.server.Close()
	if s.engine != nil {
		_ = s.engine.Close()
	}
}

// ModelURL is the base URL of the model.
func (s *Stage) ModelURL() string { return s.URL + "/v1" }

// KeysURL is where the issuer's key set is.
func (s *Stage) KeysURL() string { return s.URL + keysPath }

// DynamoDB is a client of the store.
func (s *Stage) DynamoDB(opts ...func(*dynamodb.Options)) *dynamodb.Client {
	return engine.Client(s.Store, opts...)
}

// AWS is what the clients of SNS and CloudWatch need to reach the inbox.
func (s *Stage) AWS() aws.Config {
	return aws.Config{BaseEndpoint: &s.URL, Region: engine.Region, Credentials: engine.Credentials}
}

// Environ is what the environment of a function's process says of the stage.
func (s *Stage) Environ() []string {
	return []string{
		"LIMITS_TABLE=" + s.Limits, "SPEND_TABLE=" + s.Spend, "TOPIC_ARN=" + TopicARN,
		"AWS_ENDPOINT_URL_DYNAMODB=" + s.Store, "AWS_ENDPOINT_URL_SNS=" + s.URL, "AWS_ENDPOINT_URL_CLOUDWATCH=" + s.URL,
	}
}
