package chatapi

import (
	"context"
	"sync"

	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// Warm opens what the first call will need, all at once: the store, by reading the fuse;
// the models' hosts, without a word of the owner's; the keys of the issuer of tokens. A
// container has its full processor while it starts, and a fraction of it afterwards, where
// a TLS handshake takes a tenth of a second. ctx bounds it, and what fails is ignored: the
// first call then does it by itself.
func (h *Handler) Warm(ctx context.Context) {
	var opened sync.WaitGroup
	opened.Go(func() { h.admission.Warm(ctx) })
	for _, p := range h.providers {
		opened.Go(func() { provider.Connect(ctx, p) })
	}
	if h.Verifier != nil {
		opened.Go(func() { h.Verifier.Warm(ctx) })
	}
	opened.Wait()
}
