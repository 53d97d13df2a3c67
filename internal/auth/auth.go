// Package auth turns a bearer token into a user.
//
// Guarantees: a User comes only from a JWT that the configured issuer signed
// for the configured audience with an asymmetric algorithm, that names its key,
// and whose times hold. A token in which a name stands twice, or a value has
// another type than expected, is refused rather than interpreted. A token costs at
// most one signature check and waits at most for one bounded fetch of the issuer's
// keys; the number of fetches is bounded whatever the tokens say. Errors and logs
// never contain a token or anything that a token said.
//
// Trusted: the issuer, the key set at its URL (fetched over TLS, except from
// loopback), and the clock. Nothing in a token is trusted before its signature.
// Keys once fetched are kept while the issuer cannot be reached, so a key that
// the issuer withdraws is honoured until the next fetch that succeeds.
package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var (
	// ErrExpired: the token was good, but its time is over.
	ErrExpired = errors.New("auth: the token has expired")
	// ErrInvalid: the token, or the Authorization header, is not valid.
	ErrInvalid = errors.New("auth: the token is invalid")
	// ErrUnavailable: the issuer's keys could not be fetched, so that nothing
	// can be said about the token. Trying again later may help.
	ErrUnavailable = errors.New("auth: the issuer's keys are unavailable")
)

// invalid is an ErrInvalid with a reason, which is one of our own fixed texts.
func invalid(reason string) error { return fmt.Errorf("%w: %s", ErrInvalid, reason) }

// maxTokenBytes bounds what is parsed at all; API Gateway allows about 10 KB
// for all headers together.
const maxTokenBytes = 8 << 10

// leeway is how far nbf and iat may lie in the future, for an issuer whose
// clock is ahead of ours. exp has none: a token's last second is the issuer's
// decision.
const leeway = 30 * time.Second

// algorithms are those accepted: signatures with a public key only. With HMAC
// among them, the issuer's public key would do as the secret.
var algorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
	"ES256", "ES384", "ES512", "EdDSA",
}

// Config says whose tokens are accepted.
type Config struct {
	Issuer   string // the exact iss claim
	Audience string // must be among the aud claim; see Verifier.Verify
	JWKSURL  string // https, or http on loopback
	// PlanClaim is the claim that names the user's plan; empty if none does.
	PlanClaim string
	// HTTPClient fetches the keys, without following redirects and within 3 s
	// whatever it allows itself. Nil means a client with default transport.
	HTTPClient *http.Client
	Now        func() time.Time // called concurrently; nil means time.Now
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	parser *jwt.Parser
	keys   *keySet
}

// New checks cfg. It makes no call: the keys are fetched for the first token.
// Fetches end with ctx, which must live as long as the Verifier is used.
func New(ctx context.Context, cfg Config) (*Verifier, error) {
	if cfg.Issuer == "" {
		return nil, errors.New("auth: an issuer is required")
	}
	if cfg.Audience == "" {
		return nil, errors.New("auth: an audience is required")
	}
	if err := checkKeysURL(cfg.JWKSURL); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{
		cfg: cfg,
		// claims.user checks the claims: the library has one leeway for all
		// times, and cannot accept client_id for a missing aud.
		parser: jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation()),
		keys:   newKeySet(ctx, cfg),
	}, nil
}

// checkKeysURL refuses a URL from which keys could be swapped on their way.
func checkKeysURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return errors.New("auth: the key set's address must be an absolute URL")
	}
	if u.User != nil {
		return errors.New("auth: the key set's URL must not contain credentials")
	}
	if u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()) {
		return nil
	}
	return errors.New("auth: the key set's URL must be https (http only on loopback)")
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// User is whom a token speaks for.
type User struct {
	Subject string // satisfies ValidSubject
	Plan    string // the plan claim; "" if it is absent or not a string
	Email   string // "" unless the issuer says that it verified the address
}

// Verify checks a token and says whose it is. The error is one of ErrInvalid,
// ErrExpired (in all else the token is good) and ErrUnavailable.
//
// The audience must be among aud. An access token of Amazon Cognito (token_use
// is "access") has no aud: there client_id must equal the audience.
func (v *Verifier) Verify(ctx context.Context, token string) (User, error) {
	if len(token) > maxTokenBytes {
		return User{}, invalid("too long")
	}
	if !jwtCharacters(token) {
		return User{}, invalid("malformed")
	}
	var c claims
	var keyErr error
	_, err := v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		key, err := v.key(ctx, t)
		keyErr = err
		return key, err
	})
	// The library's own messages quote the token, so none of them is passed on.
	switch {
	case keyErr != nil:
		return User{}, keyErr
	case errors.Is(err, jwt.ErrTokenMalformed):
		return User{}, invalid("malformed")
	case err != nil:
		return User{}, invalid("algorithm or signature")
	}
	return c.user(v.cfg)
}

// key finds the key that t must be signed with. The algorithm is one of ours.
func (v *Verifier) key(ctx context.Context, t *jwt.Token) (any, error) {
	// The library's view of the header hides members that stand twice.
	encoded, _, _ := strings.Cut(t.Raw, ".")
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, invalid("malformed")
	}
	header, err := parseObject(raw)
	if err != nil {
		return nil, invalid("malformed")
	}
	// crit lists extensions that must be understood; we understand none.
	if _, ok := header["crit"]; ok {
		return nil, invalid("critical extension")
	}
	// Without kid the library would try one key after the other.
	if kid, _ := header.text("kid"); kid == "" {
		return nil, invalid("no key id")
	}
	key, err := v.keys.find(ctx, t)
	if err != nil {
		return nil, err
	}
	if !fits(key, t.Method.Alg()) {
		return nil, invalid("the key is not one for the algorithm")
	}
	return key, nil
}

// fits says whether key is of the kind that RFC 7518 (section 3) and RFC 8037
// demand for the algorithm. The library checks the kind but neither the curve
// nor the size.
func fits(key any, alg string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && key.N.BitLen() >= 2048
	case *ecdsa.PublicKey:
		return alg == "ES256" && key.Curve == elliptic.P256() ||
			alg == "ES384" && key.Curve == elliptic.P384() ||
			alg == "ES512" && key.Curve == elliptic.P521()
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}
