package auth

import (
	"crypto/sha256"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tokenfuse/tokenfuse/internal/clock"
)

const (
	// rememberedTokens is how many verified tokens are remembered: those used last.
	rememberedTokens = 4096
	// rememberedBytes is the most that is remembered of what one token says. Nearly all say
	// less; a larger one is verified each time.
	rememberedBytes = 1 << 10
	// rememberedFor is how long a signature that was found good is not checked again, even
	// if no other keys are fetched.
	rememberedFor = 10 * time.Minute
)

// memory is whose the tokens are whose signature was found good, so that it need not be
// checked for each call. A token is known by its hash. It is remembered as long as the
// keys of the fetch that it was verified with are those at hand, so that a key that is
// withdrawn or replaced takes its tokens with it. Its times are checked on each use.
// Refused tokens are not remembered.
type memory struct {
	known *lru.Cache[tokenHash, remembered]
}

type tokenHash [sha256.Size]byte

type remembered struct {
	user       User
	times      times
	generation int       // of the keys
	checked    time.Time // when
}

func newMemory() memory {
	known, _ := lru.New[tokenHash, remembered](rememberedTokens) // it fails for less than one
	return memory{known}
}

// of returns whose the token is, if it is remembered and of keys of that generation. Else,
// or if its times do not hold now, ok is false and it must be verified, which says why.
func (m memory) of(token tokenHash, generation int, now time.Time) (user User, ok bool) {
	r, ok := m.known.Get(token)
	if !ok {
		return User{}, false
	}
	err := r.times.check(now)
	if r.generation != generation || clock.Since(now, r.checked) >= rememberedFor || errors.Is(err, ErrExpired) {
		m.known.Remove(token)
		return User{}, false
	}
	return r.user, err == nil
}

// put remembers a token, unless that would take too much room.
func (m memory) put(token tokenHash, r remembered) {
	size := len(r.user.Subject) + len(r.user.Email)
	for _, plan := range r.user.Plans {
		size += len(plan) + 16 // a string's header
	}
	if size <= rememberedBytes {
		m.known.Add(token, r)
	}
}
