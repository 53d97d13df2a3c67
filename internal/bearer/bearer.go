// Package bearer recognises who holds a secret that a request carries as
// "Authorization: Bearer SECRET".
//
// Guarantees: the secrets are kept as hashes, and each is compared with what was given in
// constant time, always all of them, so that neither an answer nor its time tells how near
// a guess was. No error has a secret.
package bearer

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
)

// Ring is the secrets of some holders. It is safe for concurrent use once it is filled.
type Ring[Holder any] struct {
	noun  string
	least int
	kept  []kept[Holder]
}

type kept[Holder any] struct {
	hash   [sha256.Size]byte // since a comparison of texts tells the length
	name   string
	holder Holder
}

// New makes an empty Ring. noun is what errors call a secret; least is the fewest
// characters of one that cannot be guessed.
func New[Holder any](noun string, least int) *Ring[Holder] {
	return &Ring[Holder]{noun: noun, least: least}
}

// Add adds a secret of a holder, whom errors call name. It refuses one that can be guessed,
// that no header can carry, or that another holder has.
func (r *Ring[Holder]) Add(name string, holder Holder, secret string) error {
	if len(secret) < r.least || strings.ContainsFunc(secret, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("a %s must have at least %d characters, all of them visible ASCII, without spaces and line ends", r.noun, r.least)
	}
	k := kept[Holder]{sha256.Sum256([]byte(secret)), name, holder}
	for _, other := range r.kept {
		if other.hash == k.hash && other.name != name {
			return fmt.Errorf("its secret is also that of %s", other.name)
		}
	}
	r.kept = append(r.kept, k)
	return nil
}

// Of finds whose secret a request's headers carry. A nil Ring has none.
func (r *Ring[Holder]) Of(h http.Header) (holder Holder, found bool) {
	values := h.Values("Authorization")
	if r == nil || len(r.kept) == 0 || len(values) != 1 {
		return holder, false
	}
	scheme, text, _ := strings.Cut(strings.Trim(values[0], " \t"), " ")
	given := sha256.Sum256([]byte(strings.TrimLeft(text, " ")))
	for _, k := range r.kept {
		if subtle.ConstantTimeCompare(given[:], k.hash[:]) == 1 && strings.EqualFold(scheme, "Bearer") {
			holder, found = k.holder, true
		}
	}
	return holder, found
}
