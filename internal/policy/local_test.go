package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const localPolicy = `
providers:
  claude: {kind: anthropic, api_key: {env: UNSET}}
  dear:   {kind: openai, base_url: "https://dear.example.com/v1", api_key: {env: UNSET}, bills_errors: true}
  theirs: {kind: anthropic, api_key: {env: SET}}
models:
  c: {provider: claude, id: claude-haiku-5-5, context: 100000, price_per_mtok: {input: "1", output: "5"}}
  d: {provider: dear, id: d, context: 100000, max_tokens_field: max_completion_tokens, price_per_mtok: {input: "1", output: "5"}}
  t: {provider: theirs, id: t, context: 100000, price_per_mtok: {input: "1", output: "5"}}
features:
  ask: {model: c, fallback: t, max_output_tokens: 100}
  cv:  {model: d, max_output_tokens: 100}
tiers:
  user: {max_input_tokens: 1000, max_output_tokens: 100, limits: {requests: {capacity: 10, per: 1m}}}
auth: {issuer: "https://issuer.example.com", audience: theirs, jwks_url: "https://issuer.example.com/jwks.json", plan_claim: groups, plans: {user: [Staff]}}
cloudfront: {origin_secrets: [{env: ORIGIN}], required: true}
admin: {allow_arns: ["arn:aws:iam::123456789012:user/support"]}
`

func TestLocally(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte(localPolicy))
	check.OK(t, err)
	auth := Auth{Issuer: "http://127.0.0.1:1", Audience: "local", JWKSURL: "http://127.0.0.1:1/jwks.json", PlanClaim: "plan"}
	local := p.Locally(Local{Auth: auth, AdminARN: "arn:aws:iam::000000000000:role/local", ModelURL: "http://127.0.0.1:2/v1",
		Replaces: func(p *Provider) bool { return p.APIKey.Env == "UNSET" }})

	// What was there before is as it was.
	again, err := Parse([]byte(localPolicy))
	check.OK(t, err)
	check.Equal(t, cmp.Diff(again, p), "", "the policy itself has changed")

	auth.Plans = map[string]string{"Staff": "user"}
	check.That(t, cmp.Equal(*local.Auth, auth) && !local.CloudFront.Required && len(local.CloudFront.OriginSecrets) == 1,
		"auth %+v, cloudfront %+v", local.Auth, local.CloudFront)
	if diff := cmp.Diff([]string{"arn:aws:iam::000000000000:role/local", "arn:aws:iam::123456789012:user/support"}, local.Admin.AllowARNs); diff != "" {
		t.Error(diff)
	}
	for name, bills := range map[string]bool{"claude": false, "dear": true} {
		got := local.Providers[name]
		check.That(t, got.Name == name && got.Kind == kind.OpenAI && got.BaseURL == "http://127.0.0.1:2/v1" && got.APIKey == nil && got.MayBillErrors() == bills,
			"%s has become %+v", name, got)
	}
	check.That(t, local.Providers["theirs"] == p.Providers["theirs"], "a provider with a key was replaced")
	for name, field := range map[string]string{"c": "max_tokens", "d": "max_completion_tokens", "t": ""} {
		if m := local.Models[name]; m.MaxTokensField != field || m.Provider != local.Providers[m.Provider.Name] || !cmp.Equal(m.Prices, p.Models[name].Prices) {
			t.Errorf("model %s has become %+v", name, m)
		}
	}
	// All parts are those of the copy.
	ask := local.Features["ask"]
	check.That(t, ask.Model == local.Models["c"] && ask.Fallback == local.Models["t"] && local.Features["cv"].Fallback == nil, "feature ask has become %+v", ask)

	nobody := (&Policy{Auth: &auth}).Locally(Local{Auth: auth})
	check.That(t, nobody.Auth == nil, "tokens make users of nobody's tier: %+v", nobody.Auth)
}
