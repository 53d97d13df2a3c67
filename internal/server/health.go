package server

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkTime bounds one look at the store, knownFor how long its result is told: these
	// routes ask nobody who they are, and must not become a way to load the store.
	checkTime = 2 * time.Second
	knownFor  = 2 * time.Second
)

// Readiness answers for the health of a process: /healthz as long as it runs, /readyz as
// long as it reaches its store and is not about to stop. Neither counts anything.
type Readiness struct {
	// Check looks at the store.
	Check func(context.Context) error

	leaving atomic.Bool
	mu      sync.Mutex
	checked time.Time
	failed  bool
}

// Leave says that the process is about to stop.
func (h *Readiness) Leave() { h.leaving.Store(true) }

// serve answers a request for health, and reports whether it was one.
func (h *Readiness) serve(w http.ResponseWriter, r *http.Request) bool {
	said, status := "ok", http.StatusOK
	switch r.URL.Path {
	case "/healthz":
	case "/readyz":
		switch {
		case h.leaving.Load():
			said, status = "stopping", http.StatusServiceUnavailable
		case !h.reached():
			said, status = "the store cannot be reached", http.StatusServiceUnavailable
		}
	default:
		return false
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(said + "\n"))
	return true
}

// reached reports whether the store could be reached within knownFor. Who asks while
// another looks waits for that look. The look is nobody's request: that one may leave.
func (h *Readiness) reached() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checked.IsZero() || time.Since(h.checked) >= knownFor {
		ctx, cancel := context.WithTimeout(context.Background(), checkTime)
		defer cancel()
		h.failed = h.Check(ctx) != nil
		h.checked = time.Now()
	}
	return !h.failed
}
