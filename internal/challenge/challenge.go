// Package challenge asks anonymous callers for a little work before they go on:
// friction, not a wall. Whoever solves a challenge gets a pass.
//
// Guarantees: a challenge, a solution and a pass are accepted only if we signed
// them, for the caller's network, and before they expire. A solution buys one
// pass, whatever replies are lost and however many copies of it arrive at once.
// A pass is checked without a call. If the store or a provider cannot be
// asked, nothing is accepted. Work done for a payload, or an answer of a
// provider, is bounded by its size, which is bounded too. No error contains
// what a client sent, a secret or a network.
//
// Trusted: the configured secret, clocks that differ by at most clockSkew, the
// siteverify provider at its URL, and the store. A payload and a token are not.
//
// Whoever learns the secret makes passes at will; whoever sees a network's
// traffic can take its passes, which is why they live for minutes only. Proof of
// work does not tell people from robots: it makes each pass cost time.
package challenge

import (
	"context"
	"errors"
	"time"
)

// clockSkew is how far the clocks of two of our processes may lie apart.
const clockSkew = 5 * time.Second

// Solution is a solved challenge.
type Solution struct {
	ID      string    // no other solution has it; safe in a key of the store
	Expires time.Time // until then its use must be remembered; it is not verified after
}

// Verifier checks what a client sent as payload.
type Verifier interface {
	// Verify is called with the caller's opaque network key and its address,
	// which only third-party providers get. The error is a Refusal, or wraps
	// ErrUnavailable. That a solution is used once is up to Used.
	Verify(ctx context.Context, network, remoteIP, payload string) (Solution, error)
}

// Refusal is why a solution or a pass is not accepted. Its text is for the
// caller.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// Of a solution.
const (
	ErrMissing   Refusal = "The solution is missing. Please solve a challenge first."
	ErrMalformed Refusal = "The solution cannot be read. Please solve a new challenge."
	ErrForged    Refusal = "The challenge is not one of ours. Please solve a new one."
	ErrExpired   Refusal = "The challenge has expired. Please solve a new one."
	ErrStolen    Refusal = "The challenge was given to another network. Please solve a new one."
	ErrElsewhere Refusal = "The challenge was solved on another site. Please solve a new one."
	ErrUnsolved  Refusal = "The solution is wrong. Please solve a new challenge."
	ErrUsed      Refusal = "The solution has been used already. Please solve a new challenge."
)

// Of a pass.
const (
	ErrPassMalformed Refusal = "The pass cannot be read. Please solve a challenge to get a new one."
	ErrPassForged    Refusal = "The pass is not one of ours. Please solve a challenge to get a new one."
	ErrPassExpired   Refusal = "The pass has expired. Please solve a challenge to get a new one."
	ErrPassStolen    Refusal = "The pass was given to another network. Please solve a challenge to get a new one."
)

// ErrUnavailable: the provider or the store could not be asked, or answered
// with nonsense. Nothing is accepted meanwhile.
var ErrUnavailable = errors.New("challenge: unavailable")
