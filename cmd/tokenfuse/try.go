package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/issuer"
)

const (
	tryAnonymous = `  curl %[1]s/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"model":"%[2]s","messages":[{"role":"user","content":"What is a token bucket?"}]}'
`
	tryLimits = `  curl %[1]s/v1/limits
`
	tryChallenge = `  node examples/challenge.mjs %s %s
`
	tryToken = `  TOKEN=$(%s token --sub 123 --endpoint %s)
`
	tryUser = `  curl -N %[1]s/v1/chat/completions -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -d '{"model":"%[2]s","stream":true,"messages":[{"role":"user","content":"I am a welder from Leeds."}]}'
`
	tryVectors = `  curl %[1]s/v1/embeddings%[3]s -H 'Content-Type: application/json' -d '{"model":"%[2]s","input":"What is a token bucket?"}'
`
	tryClients = `For OpenAI's clients, as %s:
  export OPENAI_BASE_URL=%s/v1 OPENAI_API_KEY=%s
`
	tryAdmin = `For support, one of the admin commands (limits, clear-limit, block, unblock, fuse, audit):
  AWS_PROFILE= AWS_SESSION_TOKEN= AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s %s fuse show --endpoint %s
`
)

// The user whose token is printed, and how long it is good.
const (
	tryAs    = "dev"
	tryUntil = 24 * time.Hour
)

// tryThis shows commands that work with the policy, for a shell.
func tryThis(w io.Writer, on *ground, p *policy.Policy) error {
	fmt.Fprintln(w, "\nTry:")
	self := ownCommand()
	if tier := p.Tiers[policy.Anonymous]; tier != nil {
		chat, vectors := firstFeatures(p, policy.Anonymous)
		if chat != "" {
			fmt.Fprintf(w, tryAnonymous, on.url, chat)
		}
		if vectors != "" {
			fmt.Fprintf(w, tryVectors, on.url, vectors, "")
		}
		fmt.Fprintf(w, tryLimits, on.url)
		if c := p.Challenge; chat != "" && c != nil && c.Kind == "altcha" && tier.ChallengeAt > 0 { // others are solved in a browser
			fmt.Fprintf(w, tryChallenge, on.url, chat)
		}
	}
	who, key := "an anonymous caller", "anonymous"
	if p.Tiers[policy.User] != nil {
		chat, vectors := firstFeatures(p, policy.User)
		if chat+vectors != "" {
			fmt.Fprintf(w, tryToken, self, on.url)
		}
		if chat != "" {
			fmt.Fprintf(w, tryUser, on.url, chat)
		}
		if vectors != "" {
			fmt.Fprintf(w, tryVectors, on.url, vectors, ` -H "Authorization: Bearer $TOKEN"`)
		}
		token, err := on.on.Issuer.Token(issuer.Claims{Subject: tryAs, TTL: tryUntil})
		if err != nil {
			return err
		}
		who, key = fmt.Sprintf("the user %s, for %.0f hours", tryAs, tryUntil.Hours()), token
	}
	fmt.Fprintf(w, tryClients, who, on.url, key)
	fmt.Fprintf(w, tryAdmin, on.keys.id, on.keys.secret, self, on.url)
	return nil
}

// firstFeatures are the first, by name, of those that a tier can talk to, and of those that
// make embeddings for it; "": there is none.
func firstFeatures(p *policy.Policy, tier string) (chat, vectors string) {
	for _, name := range p.FeatureNames(tier) {
		if p.Features[name].Model.Embeds {
			vectors = cmp.Or(vectors, name)
		} else {
			chat = cmp.Or(chat, name)
		}
	}
	return chat, vectors
}

// plainPath is what a shell takes as one word.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_./@%+,:-]+$`)

// ownCommand is how a shell in this folder calls this program.
func ownCommand() string {
	path, err := os.Executable()
	if err != nil {
		return "tokenfuse"
	}
	if here, err := os.Getwd(); err == nil {
		if inside, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(inside) {
			path = "." + string(filepath.Separator) + inside
		}
	}
	if plainPath.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
