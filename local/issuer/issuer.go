// Package issuer is an OpenID Connect issuer for a laptop: it signs a token for
// whoever asks, so that the real token check can run without a real issuer.
//
// It guarantees that its tokens are good for internal/auth with its URL,
// audience and key set, and for nothing else: its key is made at start, or from
// the seed that it is given, and it gives the key to nobody. It must not be
// reachable by anybody who may not be every user at once.
package issuer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/mail"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tokenfuse/tokenfuse/internal/keys"
)

const (
	defaultTTL = time.Hour
	maxTTL     = 30 * 24 * time.Hour
)

// Options say for what the tokens are.
type Options struct {
	URL       string           // the issuer's own URL, the iss claim
	Audience  string           // the aud claim
	PlanClaim string           // the name of the claim for the plan; "plan" if empty
	Seed      []byte           // of the key, 32 bytes: tokens are good as long as it stays; nil: a fresh key
	Now       func() time.Time // nil means time.Now
}

// Issuer signs tokens. It is safe for concurrent use.
type Issuer struct {
	opts Options
	key  ed25519.PrivateKey
	kid  string
	jwks []byte
}

// New makes an issuer.
func New(opts Options) (*Issuer, error) {
	if opts.URL == "" {
		return nil, errors.New("issuer: a URL is required")
	}
	if opts.Audience == "" {
		return nil, errors.New("issuer: an audience is required")
	}
	if opts.PlanClaim == "" {
		opts.PlanClaim = "plan"
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Seed == nil {
		opts.Seed = make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(opts.Seed) // it never fails
	}
	if len(opts.Seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("issuer: the seed must have %d bytes", ed25519.SeedSize)
	}
	private := ed25519.NewKeyFromSeed(opts.Seed)
	public := private.Public().(ed25519.PublicKey)
	// RFC 8037 appendix A.2, and its thumbprint (A.3) as the key's id.
	key := fmt.Sprintf(`"crv":"Ed25519","kty":"OKP","x":%q`, base64.RawURLEncoding.EncodeToString(public))
	thumbprint := sha256.Sum256([]byte("{" + key + "}"))
	kid := base64.RawURLEncoding.EncodeToString(thumbprint[:])
	return &Issuer{
		opts: opts,
		key:  private,
		kid:  kid,
		jwks: fmt.Appendf(nil, `{"keys":[{%s,"kid":%q,"alg":"EdDSA","use":"sig"}]}`, key, kid),
	}, nil
}

// Claims say whose a token is.
type Claims struct {
	Subject       string        // required; see keys.ValidSubject
	Email         string        // an address without a name; may be empty
	EmailVerified bool          // whether Email is marked as verified
	Plan          string        // may be empty
	TTL           time.Duration // up to 30 days; 0 means an hour
}

// fieldError says what is wrong with which field of a request for a token.
type fieldError struct{ field, reason string }

func (e *fieldError) Error() string { return e.field + " " + e.reason }

// Token signs a token. An error says which of the claims is wrong.
func (i *Issuer) Token(c Claims) (string, error) {
	token, _, err := i.issue(c)
	return token, err
}

func (i *Issuer) issue(c Claims) (token string, expires time.Time, err error) {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	switch {
	case c.Subject == "":
		return "", time.Time{}, &fieldError{"sub", "is required"}
	case !keys.ValidSubject(c.Subject):
		return "", time.Time{}, &fieldError{"sub", "must be at most 128 printable ASCII characters without space and #"}
	case c.Email != "" && !isAddress(c.Email):
		return "", time.Time{}, &fieldError{"email", "must be an e-mail address"}
	case c.TTL < 0 || c.TTL > maxTTL:
		return "", time.Time{}, &fieldError{"ttl", "must be above 0 and at most 720h"}
	}
	now := i.opts.Now()
	// Whole seconds, and never less than was asked for.
	expires = time.Unix(now.Add(c.TTL+time.Second-1).Unix(), 0)
	claims := jwt.MapClaims{
		"iss": i.opts.URL,
		"aud": i.opts.Audience,
		"sub": c.Subject,
		"iat": now.Unix(),
		"nbf": now.Unix(),
		"exp": expires.Unix(),
		"jti": rand.Text(),
	}
	if c.Email != "" {
		claims["email"] = c.Email
		claims["email_verified"] = c.EmailVerified
	}
	if c.Plan != "" {
		claims[i.opts.PlanClaim] = c.Plan
	}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	unsigned.Header["kid"] = i.kid
	token, err = unsigned.SignedString(i.key)
	return token, expires, err
}

func isAddress(s string) bool {
	address, err := mail.ParseAddress(s)
	return err == nil && address.Address == s
}
