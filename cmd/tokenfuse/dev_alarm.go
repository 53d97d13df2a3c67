package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/functions/spendalarm/alarm"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/stage"
)

// watcher runs spendalarm on its schedule, and when it is asked to.
type watcher struct {
	handler *alarm.Handler
	cancel  context.CancelFunc
	ended   chan struct{}
}

// watch starts spendalarm's schedule. Its pages and metrics go to the inbox.
func (c *devCommand) watch(ctx context.Context, p *policy.Policy, on *stage.Stage, spend *ledger.Ledger, url string, log *slog.Logger) (*watcher, error) {
	if c.AlarmEvery <= 0 {
		return nil, fmt.Errorf("--alarm-every must be above 0")
	}
	h, err := alarm.New(alarm.Config{
		Policy: p, Ledger: spend, State: on.DynamoDB(), Table: on.Limits, Endpoint: url, Log: log,
		SNS: sns.NewFromConfig(on.AWS()), TopicARN: stage.TopicARN, CloudWatch: cloudwatch.NewFromConfig(on.AWS()),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{h, cancel, make(chan struct{})}
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
}
