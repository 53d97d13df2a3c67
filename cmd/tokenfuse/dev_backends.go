package main

import (
	"context"
	"fmt"
	"io"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/secret"
)

// showBackends prints the secret by which each backend may try out dev. One that the
// owner has set is not printed.
func (s devSecret) showBackends(ctx context.Context, w io.Writer, p *policy.Policy) {
	for _, name := range p.BackendNames() {
		for _, place := range p.Backends[name].Secrets {
			if _, err := secret.Env(ctx, place); err == nil {
				fmt.Fprintf(w, "  backend    %s: by the secret in %s\n", name, place.Env)
				continue
			}
			made, _ := s.ofPolicy(ctx, place) // it never fails
			fmt.Fprintf(w, "  backend    %s: Authorization: Bearer %s\n", name, made)
		}
	}
}
