package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Key lets an administrator in where no API Gateway checks signatures.
type Key struct {
	Name   string
	hashes [][sha256.Size]byte // of its secrets, since the comparison tells the length
}

// minKey is the least that cannot be guessed, in characters.
const minKey = 32

// readKeys reads the keys of the policy. Without any there is nobody whom it could let in.
func readKeys(ctx context.Context, p Parts) ([]Key, error) {
	if p.Policy.Admin == nil || len(p.Policy.Admin.Keys) == 0 {
		return nil, errors.New("admin.keys is required for the admin routes: AWS's signatures cannot be checked here")
	}
	var keys []Key
	owner := map[[sha256.Size]byte]string{}
	for _, k := range p.Policy.Admin.Keys {
		key := Key{Name: k.Name}
		for _, s := range k.Secrets {
			text, err := p.Secret(ctx, s)
			if err == nil && (len(text) < minKey || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })) {
				err = fmt.Errorf("a key must have at least %d characters, all of them visible ASCII, without spaces and line ends", minKey)
			}
			if err != nil {
				return nil, fmt.Errorf("admin.keys.%s: %w", k.Name, err)
			}
			hash := sha256.Sum256([]byte(text))
			if other := owner[hash]; other != "" && other != k.Name {
				return nil, fmt.Errorf("admin.keys.%s: its secret is also that of %s", k.Name, other)
			}
			owner[hash] = k.Name
			key.hashes = append(key.hashes, hash)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// bearer is whose key a request carries, as the audit names them; "": nobody's. It always
// compares with all keys, so that the time which this takes tells nothing.
func bearer(keys []Key, r *http.Request) string {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, text, _ := strings.Cut(strings.Trim(values[0], " \t"), " ")
	given, found := sha256.Sum256([]byte(strings.TrimLeft(text, " "))), ""
	for _, k := range keys {
		for _, hash := range k.hashes {
			if subtle.ConstantTimeCompare(given[:], hash[:]) == 1 && strings.EqualFold(scheme, "Bearer") {
				found = "key:" + k.Name
			}
		}
	}
	return found
}
