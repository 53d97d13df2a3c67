// Package secret reads the secrets that the policy refers to. Errors name where
// a secret is kept, never what it is.
package secret

import (
	"context"
	"fmt"
	"os"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// Env reads a secret from the process's environment. It fails for a variable
// that is not set or empty, and for a secret that is kept elsewhere.
func Env(_ context.Context, s policy.Secret) (string, error) {
	if s.Env == "" {
		return "", fmt.Errorf("the secret %s%s cannot be read: only {env: VARIABLE} can", s.SSM, s.Secret)
	}
	v := os.Getenv(s.Env)
	if v == "" {
		return "", fmt.Errorf("the environment variable %s is not set", s.Env)
	}
	return v, nil
}
