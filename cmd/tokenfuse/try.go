package main

import (
	"fmt"
	"io"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

const (
	tryAnonymous = `  curl %[1]s/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"model":"%[2]s","messages":[{"role":"user","content":"What is a token bucket?"}]}'
`
	tryLimits = `  curl %[1]s/v1/limits
`
	tryChallenge = `  node examples/challenge.mjs %s %s
`
	tryUser = `  TOKEN=$(go run ./cmd/tokenfuse token --sub 123 --endpoint %[1]s)
  curl -N %[1]s/v1/chat/completions -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -d '{"model":"%[2]s","stream":true,"messages":[{"role":"user","content":"I am a welder from Leeds."}]}'
`
)

// tryThis shows commands that work with the policy, for a shell.
func tryThis(w io.Writer, url string, p *policy.Policy) {
	fmt.Fprintln(w, "Try:")
	if features, tier := p.FeatureNames(policy.Anonymous), p.Tiers[policy.Anonymous]; tier != nil && len(features) > 0 {
		fmt.Fprintf(w, tryAnonymous, url, features[0])
		fmt.Fprintf(w, tryLimits, url)
		if c := p.Challenge; c != nil && c.Kind == "altcha" && tier.ChallengeAt > 0 { // others are solved in a browser
			fmt.Fprintf(w, tryChallenge, url, features[0])
		}
	}
	if features := p.FeatureNames(policy.User); p.Tiers[policy.User] != nil && len(features) > 0 {
		fmt.Fprintf(w, tryUser, url, features[0])
	}
}
