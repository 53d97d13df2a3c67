package chatapi

import (
	"context"
	"errors"
)

// ErrStopped is the cause with which a process that must end cancels requests that are
// still in flight. It is not the caller who has left then: the call counts as one that
// failed on the way.
var ErrStopped = errors.New("the process ends")

// Close gives back what this process holds of the pools, when its last call has ended.
func (h *Handler) Close(ctx context.Context) { h.admission.Release(ctx) }
