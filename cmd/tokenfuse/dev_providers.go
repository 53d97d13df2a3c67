package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
)

// whyBuiltIn says why the built-in model stands in for a provider; "" if it does not. A
// provider that wants no key is called as it is.
func (c *devCommand) whyBuiltIn(p *policy.Provider) string {
	switch key := p.APIKey; {
	case c.FakeProvider:
		return "as --fake-provider says"
	case key == nil:
		return ""
	case key.Env == "" || os.Getenv(key.Env) == "":
		return "since " + cmp.Or(key.Env, key.SSM, key.Secret) + " is not set"
	case ownToken(os.Getenv(key.Env)): // from a shell with the lines that dev prints
		return "since " + key.Env + " is a token of dev's"
	}
	return ""
}

// ownToken reports whether a key is a token of dev's issuer, of this run or another.
func ownToken(key string) bool {
	var claims jwt.RegisteredClaims
	_, _, err := jwt.NewParser().ParseUnverified(key, &claims)
	return err == nil && claims.Issuer == devIssuer
}

// showProviders says which providers are called, and for which the built-in model stands
// in.
func (c *devCommand) showProviders(w io.Writer, p *policy.Policy) {
	for _, name := range slices.Sorted(maps.Keys(p.Providers)) {
		provider := p.Providers[name]
		if why := c.whyBuiltIn(provider); why != "" {
			fmt.Fprintf(w, "  provider   %s: built-in, %s\n", name, why)
			continue
		}
		fmt.Fprintf(w, "  provider   %s: %s\n", name, cmp.Or(provider.BaseURL, string(provider.Kind)))
	}
}

// bedrockConfig is what every AWS tool finds, if there is Bedrock to call with it.
func bedrockConfig(ctx context.Context, p *policy.Policy) (aws.Config, error) {
	for _, provider := range p.UsedProviders() {
		if provider.Kind == kind.Bedrock {
			return config.LoadDefaultConfig(ctx)
		}
	}
	return aws.Config{}, nil
}
