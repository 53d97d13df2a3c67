package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/clock"
)

// watcher runs spendalarm on its schedule, and when it is asked to.
type watcher struct {
	functions *generations
	cancel    context.CancelFunc
	ended     chan struct{}
}

// watch starts spendalarm's schedule. Its pages and metrics go to the inbox.
func (c *devCommand) watch(ctx context.Context, functions *generations, log *slog.Logger) *watcher {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{functions, cancel, make(chan struct{})}
	go func() {
		defer close(w.ended)
		clock.Every(ctx, c.AlarmEvery, func(ctx context.Context) {
			if _, err := functions.now().alarm.Run(ctx); err != nil && ctx.Err() == nil {
				log.Error("spendalarm failed", "error", err)
			}
		})
	}()
	return w
}

// ServeHTTP runs spendalarm now and answers its result.
func (w *watcher) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	result, err := w.functions.now().alarm.Run(r.Context())
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
