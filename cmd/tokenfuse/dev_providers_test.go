package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/local/upstream"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// A provider whose key is not set is the built-in model, whatever its kind; its
// models can be called as they were.
func TestReplacedProvidersAnswer(t *testing.T) {
	t.Setenv("DEV_TEST_SET", "key")
	users, err := issuer.New(issuer.Options{URL: devIssuer, Audience: audience})
	check.OK(t, err)
	token, err := users.Token(issuer.Claims{Subject: "dev"})
	check.OK(t, err)
	t.Setenv("DEV_TEST_TOKEN", token) // as in a shell with the lines that dev prints
	p := &policy.Policy{Providers: map[string]*policy.Provider{
		"claude": {Name: "claude", Kind: "anthropic", APIKey: &policy.Secret{Env: "DEV_TEST_UNSET"}},
		"dear":   {Name: "dear", Kind: "openai", APIKey: &policy.Secret{Env: "DEV_TEST_UNSET"}, BillsErrors: new(true)},
		"theirs": {Name: "theirs", Kind: "anthropic", APIKey: &policy.Secret{Env: "DEV_TEST_SET"}},
		"ours":   {Name: "ours", Kind: "openai", APIKey: &policy.Secret{Env: "DEV_TEST_TOKEN"}},
		"stored": {Name: "stored", Kind: "openai", APIKey: &policy.Secret{SSM: "/key"}},
		"aws":    {Name: "aws", Kind: "bedrock"},
	}}
	p.Models = map[string]*policy.Model{"m": {Name: "m", ID: "claude-haiku-5-5", Provider: p.Providers["claude"]}}
	var out bytes.Buffer
	c := &devCommand{}
	c.showProviders(&out, p)
	model := httptest.NewServer(upstream.New(upstream.Options{}))
	defer model.Close()
	p = p.Locally(policy.Local{ModelURL: model.URL + "/v1", Replaces: func(p *policy.Provider) bool { return c.whyBuiltIn(p) != "" }})

	for _, line := range []string{
		"claude: built-in, since DEV_TEST_UNSET is not set", "theirs: anthropic", "aws: bedrock",
		"ours: built-in, since DEV_TEST_TOKEN is a token of dev's", "stored: built-in, since /key is not set",
	} {
		check.That(t, strings.Contains(out.String(), line+"\n"), "%q does not say %q", out.String(), line)
	}
	fake := &devCommand{FakeProvider: true}
	for name, provider := range p.Providers {
		check.That(t, fake.whyBuiltIn(provider) != "", "%s is asked though all is to be built in", name)
	}
	check.Equal(t, p.Providers["theirs"].Kind+p.Providers["aws"].Kind, "anthropicbedrock", "the others have become")
	// The built-in model charges for no error, unless it is to stand for one that does.
	for name, bills := range map[string]bool{"claude": false, "dear": true} {
		check.Equal(t, p.Providers[name].MayBillErrors(), bills, "%s bills errors", name)
	}
	m := p.Models["m"]
	made, err := provider.NewOpenAI(provider.OpenAIConfig{BaseURL: m.Provider.BaseURL, HTTPClient: http.DefaultClient})
	check.Must(t, err == nil && m.Provider.Kind == "openai", "%s: %v", m.Provider.Kind, err)
	a, err := made.Call(t.Context(), provider.Request{
		Model: m.ID, Messages: []openai.Message{{Role: "user", Content: "hi [[fail:nousage]]"}}, MaxOutputTokens: 5, MaxTokensField: m.MaxTokensField})
	check.OK(t, err)
	defer a.Close()
	if part, err := a.Next(); err != nil && err != io.EOF || part.FinishReason == "" {
		t.Errorf("answered %+v, %v", part, err)
	}
}
