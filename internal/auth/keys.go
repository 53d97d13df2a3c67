package auth

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/tokenfuse/tokenfuse/internal/clock"
)

const (
	// refreshAfter is the age at which the next token starts a fetch in the
	// background: there is no timer, since a frozen Lambda would not run it.
	refreshAfter = 10 * time.Minute
	// fetchTimeout bounds one fetch, its body included.
	fetchTimeout = 3 * time.Second
	// maxKeySetBytes is several times the largest set of a public issuer.
	maxKeySetBytes = 256 << 10
	// All fetches, whatever their reason, come from one budget, or tokens with
	// random key ids would make us hammer the issuer.
	fetchEvery = 15 * time.Second
	fetchBurst = 4
)

// keySet is the issuer's published keys. The library's own client is not used:
// it fetches while it is created, reads without a bound, drops every key for
// one that it does not know or for an empty answer, and during a fetch for an
// unknown key id it refuses everybody else's.
type keySet struct {
	url    string
	client *http.Client
	now    func() time.Time
	life   context.Context // of every fetch; a fetch serves many requests, so none of theirs
	budget *rate.Limiter

	mu         sync.Mutex
	keys       *published    // of the last fetch that succeeded; nil before
	fetched    time.Time     // when that began
	failure    error         // of the last fetch; nil if it succeeded
	generation int           // how many fetches have succeeded
	pending    chan struct{} // closed when the running fetch has ended; nil if none runs
}

func newKeySet(ctx context.Context, cfg Config) *keySet {
	client := http.Client{}
	if cfg.HTTPClient != nil {
		client = *cfg.HTTPClient
	}
	// A redirect could leave https.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &keySet{
		url:    cfg.JWKSURL,
		client: &client,
		now:    cfg.Now,
		life:   ctx,
		budget: rate.NewLimiter(rate.Every(fetchEvery), fetchBurst),
	}
}

// find returns the public key that t names. A key that is not in the set may be
// new: then it waits for a fetch, as it does when nothing was fetched yet.
func (s *keySet) find(ctx context.Context, t *jwt.Token) (found, error) {
	keys, seen := s.cached()
	if keys != nil {
		if key, err := keys.named(ctx, t); ReasonOf(err) != KeyUnknown {
			return key, err
		}
	}
	keys, err := s.later(ctx, seen)
	if err != nil {
		return found{}, err
	}
	return keys.named(ctx, t)
}

// cached returns the keys at hand, nil if there are none, and which fetch they are
// of. It sees to it that they are fetched again in time.
func (s *keySet) cached() (keys *published, generation int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys != nil && clock.Since(s.now(), s.fetched) >= refreshAfter {
		s.fetch()
	}
	return s.keys, s.generation
}

// later returns the keys of a fetch later than that of seen: of one that has ended
// meanwhile, else of a new one, or those at hand if the budget allows none. It fails
// if the last fetch failed, even when older keys are at hand: a key that they lack
// may well be good. The error is ErrUnavailable.
func (s *keySet) later(ctx context.Context, seen int) (*published, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != seen && s.failure == nil {
		return s.keys, nil
	}
	if running := s.fetch(); running != nil {
		s.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if s.failure != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, s.failure)
	}
	return s.keys, nil
}

// fetch starts a fetch, unless one runs, and returns the channel that tells its
// end. It returns nil if the budget is used up. s.mu is held.
func (s *keySet) fetch() <-chan struct{} {
	if s.pending != nil {
		return s.pending
	}
	if !s.budget.AllowN(s.now(), 1) {
		return nil
	}
	done, begun := make(chan struct{}), s.now()
	s.pending = done
	go func() {
		keys, err := s.download()
		if err != nil && s.life.Err() == nil {
			slog.WarnContext(s.life, "auth: cannot fetch the issuer's keys", "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.keys, s.fetched = keys, begun
			s.generation++
			keys.generation = s.generation
		}
		s.failure, s.pending = err, nil
		close(done)
	}()
	return done
}

func (s *keySet) download() (*published, error) {
	ctx, cancel := context.WithTimeout(s.life, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the key set was answered with status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxKeySetBytes {
		return nil, fmt.Errorf("the key set has more than %d bytes", maxKeySetBytes)
	}
	return parseKeys(body)
}

// parseKeys reads a JWK set (RFC 7517). Keys that are of no use here, such as
// those for encryption, or of a kind not known, are left out, as the standard
// asks. A set without any key left is an error: it is far likelier that the
// endpoint is broken than that the issuer withdrew everything.
func parseKeys(body []byte) (*published, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("the key set is not valid JSON")
	}
	var usable []jwkset.JWK
	for _, raw := range set.Keys {
		var published jwkset.JWKMarshal
		if json.Unmarshal(raw, &published) != nil {
			continue
		}
		// Keys are trusted for where they stand. What is said of a certificate is not
		// needed, and some of Auth0's thumbprints are wrong.
		published.X5U, published.X5C, published.X5T, published.X5TS256 = "", nil, "", ""
		// The zero options leave out secret keys.
		key, err := jwkset.NewJWKFromMarshal(published, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
		if err != nil {
			continue
		}
		if use := key.Marshal().USE; use == "" || use == jwkset.UseSig {
			usable = append(usable, key)
		}
	}
	if len(usable) == 0 {
		return nil, errors.New("the key set has no usable key")
	}
	storage := jwkset.NewMemoryStorage()
	if err := storage.KeyReplaceAll(context.Background(), usable); err != nil {
		return nil, err
	}
	byName, err := keyfunc.New(keyfunc.Options{Storage: storage})
	return &published{Keyfunc: byName, all: usable}, err
}

// published are the keys of one fetch.
type published struct {
	keyfunc.Keyfunc // finds them by name
	all             []jwkset.JWK
	generation      int // of the fetch
}

// named returns the key that t names.
func (p *published) named(ctx context.Context, t *jwt.Token) (found, error) {
	key, err := p.KeyfuncCtx(ctx)(t)
	switch {
	case err == nil:
		return found{key: key, of: p}, nil
	case errors.Is(err, jwkset.ErrKeyNotFound):
		return found{}, refuse(KeyUnknown)
	}
	return found{}, refuse(KeyUnfit)
}

// fitting are the keys that may have signed with the algorithm.
func (p *published) fitting(alg string) (list []any) {
	for _, k := range p.all {
		if said := k.Marshal().ALG; (said == "" || said.String() == alg) && fits(k.Key(), alg) {
			list = append(list, k.Key())
		}
	}
	return list
}

// found is a key that a token must be signed with.
type found struct {
	key     any
	of      *published
	unnamed bool // the token does not name it; it is the only one that fits
}

// only returns the key of a token that names none: the only one that fits its algorithm.
// Of several none is tried, which would cost a check each. If none fits it waits for a
// fetch, as find does.
func (s *keySet) only(ctx context.Context, alg string) (found, error) {
	keys, seen := s.cached()
	if keys == nil || len(keys.fitting(alg)) == 0 {
		var err error
		if keys, err = s.later(ctx, seen); err != nil {
			return found{}, err
		}
	}
	list := keys.fitting(alg)
	if len(list) != 1 {
		return found{}, refuse(KidMissing)
	}
	return found{list[0], keys, true}, nil
}

// replaced returns the key in place of an unnamed one with which a token was not signed:
// the issuer may have published another meanwhile. If not, the token is refused.
func (s *keySet) replaced(ctx context.Context, old found, alg string) (found, error) {
	keys, err := s.later(ctx, old.of.generation)
	if err != nil {
		return found{}, err
	}
	list := keys.fitting(alg)
	switch same := old.key.(interface{ Equal(crypto.PublicKey) bool }); {
	case len(list) != 1:
		return found{}, refuse(KidMissing)
	case same.Equal(list[0]):
		return found{}, refuse(Signature)
	}
	return found{list[0], keys, true}, nil
}
