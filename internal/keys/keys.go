// Package keys has the partition keys of the table Limits. All kinds of items share that
// table: their keys are formed and read here, so that no two kinds meet.
package keys

import (
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"strings"
)

// The items of which there is one.
const (
	Fuse  = "fuse"  // what is switched off
	Alarm = "alarm" // what the alarm remembers
	Audit = "audit" // how many changes administrators have made
)

// Kind is a kind of item of which there are many: what their keys begin with.
type Kind string

const (
	User    Kind = "user#"  // a user's buckets; the id is the sub of the token
	Network Kind = "net#"   // an anonymous network's buckets; fingerprint.Keyer.Network makes the id
	Pass    Kind = "pass#"  // the buckets of a solved challenge's pass; challenge.Pass.ID
	Admin   Kind = "admin#" // an administrator's bucket; a hash of the ARN
	Pool    Kind = "pool#"  // a pool's bucket; its name
	Email   Kind = "email#" // the users of an e-mail address; its keyed hash
	Used    Kind = "used#"  // a solution that was used; challenge.Solution.ID
	audit   Kind = "audit#"
)

// Key is the key of an item.
func (k Kind) Key(id string) string { return string(k) + id }

// ID reads what Key made. It reports false for keys of other kinds.
func (k Kind) ID(key string) (id string, ok bool) { return strings.CutPrefix(key, string(k)) }

// Visitor is the id of a visitor for whom a backend of the configuration calls, within a
// kind: user#web#…, net#web#…, pass#web#…. No other id has a #, so that whatever a backend
// says, the item is one of its own visitors.
func Visitor(backend, id string) string { return backend + "#" + id }

// Siteverify is the key of the bucket of what a network may ask of a third party that
// checks challenges. No network has such an id.
func Siteverify(network string) string { return Network.Key(network + "#siteverify") }

// Change is the key of the nth change that an administrator made, from 1. (Before there
// were numbers, a change had its time and a random text there.)
func Change(n int64) string { return audit.Key(fmt.Sprintf("%012d", n)) }

// ValidSubject says whether sub can name a user: 1 to 128 characters of
// printable ASCII (OpenID Connect allows ASCII only) without space and without
// '#', which separates the kind from the name in keys. It may
// hold quotes, so whoever puts it in a command has to quote it.
func ValidSubject(sub string) bool {
	if sub == "" || len(sub) > 128 {
		return false
	}
	for i := range len(sub) {
		if c := sub[i]; c <= ' ' || c > '~' || c == '#' {
			return false
		}
	}
	return true
}

// Identity reads the key of an identity, which is a user, a network or a pass, of a
// backend's visitor too. It reports false for every other key, and for an id that no
// network, pass or visitor can have. What else may be a user's id is up to ValidSubject.
func Identity(key string) (k Kind, id string, ok bool) {
	for _, k := range []Kind{User, Network, Pass} {
		if id, ok := k.ID(key); ok {
			backend, of, visits := strings.Cut(id, "#")
			if visits {
				return k, id, ValidSubject(backend) && k.ofVisitor().mayBe(of) // names of backends are plainer still
			}
			return k, id, k.mayBe(id)
		}
	}
	return "", "", false
}

// ofVisitor is the kind whose ids have the form of a visitor's: one whom a backend vouches
// for is known by a hash, as a network is.
func (k Kind) ofVisitor() Kind {
	if k == User {
		return Network
	}
	return k
}

// mayBe reports whether an id has the form that its maker gives it: of a network 80 bits
// in base32, of a pass 128 bits in base64. The decoders skip line breaks, which leaves too
// few bits.
func (k Kind) mayBe(id string) bool {
	switch k {
	case Network:
		bits, err := base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").DecodeString(id)
		return err == nil && len(id) == 16 && len(bits) == 10
	case Pass:
		bits, err := base64.RawURLEncoding.DecodeString(id)
		return err == nil && len(id) == 22 && len(bits) == 16
	default:
		return true
	}
}
