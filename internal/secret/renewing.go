package secret

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/clock"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// renewEvery is how old the secrets become of a process that lives for days.
const renewEvery = 4 * time.Hour

// Read tells a secret.
type Read = func(context.Context, policy.Secret) (string, error)

// Fetch reads secrets, and gives what tells them, as (*Reader).Fetch does.
type Fetch = func(context.Context, []policy.Secret) Read

// Renewing is something that is made of secrets, such as a handler, in a process that lives
// for days. They are read again now and then, and if one has changed, it is made anew. What
// cannot be read, or of which nothing can be made, stays as it is.
type Renewing[T any] struct {
	current atomic.Pointer[T]
	secrets []policy.Secret
	fetch   Fetch
	read    Read // what current was made of
	make    func(context.Context, Read) (T, error)
}

// NewRenewing makes the first one, of what read tells. Nothing is renewed before Keep.
func NewRenewing[T any](ctx context.Context, secrets []policy.Secret, read Read, fetch Fetch, make func(context.Context, Read) (T, error)) (*Renewing[T], error) {
	first, err := make(ctx, read)
	if err != nil {
		return nil, err
	}
	r := &Renewing[T]{secrets: secrets, fetch: fetch, read: read, make: make}
	r.current.Store(&first)
	return r, nil
}

// Now is the one of now.
func (r *Renewing[T]) Now() T { return *r.current.Load() }

// Keep renews until ctx ends. What is replaced goes to retire, if that is not nil.
func (r *Renewing[T]) Keep(ctx context.Context, retire func(before T)) {
	clock.Every(ctx, renewEvery, func(ctx context.Context) {
		if before, renewed := r.Renew(ctx); renewed && retire != nil {
			retire(before)
		}
	})
}

// Renew reads the secrets. If one has changed and can be used, it reports so, and gives
// what was there before. It is not for concurrent use; Now is.
func (r *Renewing[T]) Renew(ctx context.Context) (before T, renewed bool) {
	read, old := r.fetch(ctx, r.secrets), r.read
	values, changed := map[policy.Secret]string{}, false
	for _, s := range r.secrets {
		was, _ := old(ctx, s)
		now, err := read(ctx, s)
		if err != nil {
			slog.WarnContext(ctx, "a secret cannot be read again: the one at hand is used", "error", err)
			now = was
		}
		values[s], changed = now, changed || now != was
	}
	if !changed {
		return before, false
	}
	told := func(ctx context.Context, s policy.Secret) (string, error) {
		if v, ok := values[s]; ok && v != "" {
			return v, nil
		}
		return old(ctx, s)
	}
	made, err := r.make(context.WithoutCancel(ctx), told) // it may be in use when Keep has ended
	if err != nil {
		slog.ErrorContext(ctx, "a secret has changed, and the new one cannot be used: the one before is", "error", err)
		return before, false
	}
	r.read = told
	slog.InfoContext(ctx, "a secret has changed: the new one is used")
	return *r.current.Swap(&made), true
}
