package main

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/secret"
)

// devSecret is what all secrets of dev come from that nobody gave: those of the policy,
// the issuer's key, the key pair for admin commands. Who keeps it keeps them all.
type devSecret string

// keptSecret reads the secret in the folder of the data, or makes it there. Without a
// folder it lasts as long as dev.
func keptSecret(dir string) (devSecret, error) {
	made := rand.Text()
	if dir == "" {
		return devSecret(made), nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("--data: %w", err)
	}
	file := filepath.Join(dir, "secret")
	kept, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		// Whole or not at all: of half a secret nobody would know.
		kept, err = []byte(made), errors.Join(os.WriteFile(file+".new", []byte(made), 0o600), os.Rename(file+".new", file))
	}
	if err == nil {
		err = os.Chmod(file, 0o600)
	}
	if err == nil && len(kept) < len(made) {
		err = fmt.Errorf("%s is not what dev has written: remove it, and its tokens and passes are void", file)
	}
	if err != nil {
		return "", fmt.Errorf("--data: %w", err)
	}
	return devSecret(kept), nil
}

// derive makes a secret of n bytes for one use.
func (s devSecret) derive(use string, n int) []byte {
	key, err := hkdf.Key(sha256.New, []byte(s), nil, "tokenfuse dev: "+use, n)
	if err != nil {
		panic(err) // it fails on lengths that nobody asks for
	}
	return key
}

// ofPolicy reads secrets of the policy from the environment. Those that are not there
// are the same for all instances: the key of anonymous callers' limits is one. Each place
// has its own: by the secret of one backend another must not be taken for it.
func (s devSecret) ofPolicy(ctx context.Context, p policy.Secret) (string, error) {
	if v, err := secret.Env(ctx, p); err == nil {
		return v, nil
	}
	return hex.EncodeToString(s.derive(fmt.Sprintf("secret %q", p), 16)), nil
}

// devARN is who signs with dev's key pair, and who is on the allow-list if there is one.
const devARN = "arn:aws:iam::000000000000:role/tokenfuse-dev"

// keyPair is what signs requests to dev's admin routes.
type keyPair struct{ id, secret string }

func (s devSecret) keyPair() keyPair {
	letters := base64.RawURLEncoding.EncodeToString
	return keyPair{fmt.Sprintf("AKIA%X", s.derive("key id", 8)), letters(s.derive("key", 30))}
}

// known is who signs with the key pair.
func (k keyPair) known(id string) (secret, arn string, ok bool) {
	return k.secret, devARN, id == k.id
}
