package chatapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/clock"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// renewEvery is how old the secrets become of a process that lives for days.
const renewEvery = 4 * time.Hour

// Renewing is the Handler of a process that lives for days. Its secrets are read again now
// and then: if one has changed, a handler is made anew, and calls under way end with the
// old one. What cannot be read, or of which no handler can be made, stays as it is.
type Renewing struct {
	current atomic.Pointer[Handler]
	parts   Parts // whose Secret gives what current was made of
	read    Fetch
}

// Fetch reads secrets, and gives a function that tells what was read.
type Fetch func(context.Context, []policy.Secret) func(context.Context, policy.Secret) (string, error)

// BuildRenewing is Build. Nothing is renewed before Keep.
func BuildRenewing(ctx context.Context, p Parts, read Fetch) (*Renewing, error) {
	h, err := Build(ctx, p)
	if err != nil {
		return nil, err
	}
	r := &Renewing{parts: p, read: read}
	r.current.Store(h)
	return r, nil
}

// ServeHTTP answers a request, with the handler of now.
func (r *Renewing) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.current.Load().ServeHTTP(w, req)
}

// Warm is the handler's.
func (r *Renewing) Warm(ctx context.Context) { r.current.Load().Warm(ctx) }

// Close is the handler's.
func (r *Renewing) Close(ctx context.Context) { r.current.Load().Close(ctx) }

// Keep renews until ctx ends.
func (r *Renewing) Keep(ctx context.Context) {
	clock.Every(ctx, renewEvery, func(ctx context.Context) { r.renew(ctx) })
}

// renew reads the secrets, and reports whether there is a new handler.
func (r *Renewing) renew(ctx context.Context) bool {
	secrets := r.parts.Policy.Secrets()
	read, old := r.read(ctx, secrets), r.parts.Secret
	values, changed := map[policy.Secret]string{}, false
	for _, s := range secrets {
		before, _ := old(ctx, s)
		now, err := read(ctx, s)
		if err != nil {
			slog.WarnContext(ctx, "a secret cannot be read again: the one at hand is used", "error", err)
			now = before
		}
		values[s], changed = now, changed || now != before
	}
	if !changed {
		return false
	}
	parts := r.parts
	parts.Secret = func(ctx context.Context, s policy.Secret) (string, error) {
		if v, ok := values[s]; ok && v != "" {
			return v, nil
		}
		return old(ctx, s)
	}
	ctx = context.WithoutCancel(ctx) // calls may be under way when Keep has ended
	h, err := Build(ctx, parts)
	if err != nil {
		slog.ErrorContext(ctx, "a secret has changed, and the new one cannot be used: the one before is", "error", err)
		return false
	}
	r.parts = parts
	before := r.current.Swap(h)
	slog.InfoContext(ctx, "a secret has changed: the new one is used")
	// What the old handler holds of the pools goes back when its last call has ended.
	time.AfterFunc(r.parts.Policy.LongestCall()+admission.SettleMargin, func() {
		ctx, cancel := context.WithTimeout(ctx, admission.SettleTime)
		defer cancel()
		before.Close(ctx)
	})
	return true
}
