package chatapi

import (
	"context"
	"net/http"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/secret"
)

// Renewing is the Handler of a process that lives for days: when a secret has changed, a
// handler is made anew, and calls under way end with the old one.
type Renewing struct {
	handlers *secret.Renewing[*Handler]
	longest  time.Duration // of a call
}

// BuildRenewing is Build. Nothing is renewed before Keep.
func BuildRenewing(ctx context.Context, p Parts, read secret.Fetch) (*Renewing, error) {
	handlers, err := secret.NewRenewing(ctx, p.Policy.Secrets(), p.Secret, read, func(ctx context.Context, told secret.Read) (*Handler, error) {
		p.Secret = told
		return Build(ctx, p)
	})
	return &Renewing{handlers, p.Policy.LongestCall()}, err
}

// ServeHTTP answers a request, with the handler of now.
func (r *Renewing) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.handlers.Now().ServeHTTP(w, req)
}

// Warm is the handler's.
func (r *Renewing) Warm(ctx context.Context) { r.handlers.Now().Warm(ctx) }

// Close is the handler's.
func (r *Renewing) Close(ctx context.Context) { r.handlers.Now().Close(ctx) }

// Keep renews until ctx ends.
func (r *Renewing) Keep(ctx context.Context) { r.handlers.Keep(ctx, r.retire) }

// retire closes a handler when its last call has ended: what it holds of the pools goes
// back.
func (r *Renewing) retire(before *Handler) {
	time.AfterFunc(r.longest+admission.SettleMargin, func() {
		ctx, cancel := context.WithTimeout(context.Background(), admission.SettleTime)
		defer cancel()
		before.Close(ctx)
	})
}
