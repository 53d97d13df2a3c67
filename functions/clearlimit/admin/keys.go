package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenfuse/tokenfuse/internal/bearer"
)

// minKey is the least that cannot be guessed, in characters.
const minKey = 32

// readKeys reads the keys of the policy, which let administrators in where no API Gateway
// checks signatures. Each is held by whom the audit names for it. Without any there is
// nobody whom it could let in.
func readKeys(ctx context.Context, p Parts) (*bearer.Ring[string], error) {
	if p.Policy.Admin == nil || len(p.Policy.Admin.Keys) == 0 {
		return nil, errors.New("admin.keys is required for the admin routes: AWS's signatures cannot be checked here")
	}
	keys := bearer.New[string]("key", minKey)
	for _, k := range p.Policy.Admin.Keys {
		for _, s := range k.Secrets {
			secret, err := p.Secret(ctx, s)
			if err == nil {
				err = keys.Add(k.Name, "key:"+k.Name, secret)
			}
			if err != nil {
				return nil, fmt.Errorf("admin.keys.%s: %w", k.Name, err)
			}
		}
	}
	return keys, nil
}
