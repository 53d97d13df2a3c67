package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/functions/spendalarm/alarm"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/local/inbox"
)

// watcher runs spendalarm on its schedule, and when it is asked to.
type watcher struct {
	handler *alarm.Handler
	server  *httptest.Server // the inbox, as the SDK's clients reach it
	cancel  context.CancelFunc
	ended   chan struct{}
}

// watch starts spendalarm's schedule. Its pages and metrics go to the inbox.
func (c *devCommand) watch(ctx context.Context, p *policy.Policy, store string, spend *ledger.Ledger, arrived *inbox.Inbox, url string, log *slog.Logger) (*watcher, error) {
	if c.AlarmEvery <= 0 {
		return nil, fmt.Errorf("--alarm-every must be above 0")
	}
	server := httptest.NewServer(arrived)
	credentials := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
	})
	db := engine.Client(store)
	h, err := alarm.New(alarm.Config{
		Policy: p, Ledger: spend, State: db, Table: limitsTable,
		SNS:        sns.New(sns.Options{BaseEndpoint: &server.URL, Region: "us-east-1", Credentials: credentials}),
		TopicARN:   "arn:aws:sns:us-east-1:000000000000:tokenfuse-dev",
		CloudWatch: cloudwatch.New(cloudwatch.Options{BaseEndpoint: &server.URL, Region: "us-east-1", Credentials: credentials}),
		Fuse:       fuse.NewWriter(db, limitsTable, time.Now), Endpoint: url, Log: log,
	})
	if err != nil {
		server.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{h, server, cancel, make(chan struct{})}
	go func() {
		defer close(w.ended)
		tick := time.NewTicker(c.AlarmEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if _, err := h.Run(ctx); err != nil && ctx.Err() == nil {
					log.Error("spendalarm failed", "error", err)
				}
			}
		}
	}()
	return w, nil
}

// ServeHTTP runs spendalarm now and answers its result.
func (w *watcher) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	result, err := w.handler.Run(r.Context())
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(result)
}

func (w *watcher) stop() {
	w.cancel()
	<-w.ended
	w.server.Close()
}
