package main

import (
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
	tryUser = `  TOKEN=$(%[3]s token --sub 123 --endpoint %[1]s)
  curl -N %[1]s/v1/chat/completions -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -d '{"model":"%[2]s","stream":true,"messages":[{"role":"user","content":"I am a welder from Leeds."}]}'
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
	if features, tier := p.FeatureNames(policy.Anonymous), p.Tiers[policy.Anonymous]; tier != nil && len(features) > 0 {
		fmt.Fprintf(w, tryAnonymous, on.url, features[0])
		fmt.Fprintf(w, tryLimits, on.url)
		if c := p.Challenge; c != nil && c.Kind == "altcha" && tier.ChallengeAt > 0 { // others are solved in a browser
			fmt.Fprintf(w, tryChallenge, on.url, features[0])
		}
	}
	who, key := "an anonymous caller", "anonymous"
	if p.Tiers[policy.User] != nil {
		if features := p.FeatureNames(policy.User); len(features) > 0 {
			fmt.Fprintf(w, tryUser, on.url, features[0], self)
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
