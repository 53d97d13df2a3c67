package policy

import (
	"cmp"

	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
)

// Local says what differs where a policy is tried out on one machine.
type Local struct {
	// Auth says whose tokens make a caller a user, in place of what the policy says, but
	// for its names of plans. It counts where there is a tier of users.
	Auth Auth
	// AdminARN may call the admin routes beside those that the policy lists.
	AdminARN string
	// ModelURL is the base URL of the model that stands in for the providers of which
	// Replaces says so. It speaks OpenAI's protocol, wants no key, no headers and no extra
	// fields, and bills no error.
	ModelURL string
	Replaces func(*Provider) bool
}

// Locally is the policy where it is tried out on one machine. Callers come straight to
// it, not through a distribution, and pages of this machine may call. p stays as it is;
// the copy shares what is the same.
func (p *Policy) Locally(l Local) *Policy {
	local := *p
	local.Auth = nil
	if p.Tiers[User] != nil {
		local.Auth = &l.Auth
		if p.Auth != nil {
			local.Auth.Plans = p.Auth.Plans
		}
	}
	if p.CloudFront != nil {
		straight := *p.CloudFront
		straight.Required = false
		local.CloudFront = &straight
	}
	local.CORS = &CORS{Loopback: true}
	if p.CORS != nil {
		local.CORS.Origins = p.CORS.Origins
	}
	if p.Admin != nil {
		local.Admin = &Admin{AllowARNs: append([]string{l.AdminARN}, p.Admin.AllowARNs...)}
	}
	local.Providers = map[string]*Provider{}
	for name, provider := range p.Providers {
		local.Providers[name] = l.provider(provider)
	}
	local.Models = map[string]*Model{}
	for name, m := range p.Models {
		local.Models[name] = l.model(m, local.Providers)
	}
	local.Features = map[string]*Feature{}
	for name, f := range p.Features {
		feature := *f
		feature.Model = local.Models[f.Model.Name]
		if f.Fallback != nil {
			feature.Fallback = local.Models[f.Fallback.Name]
		}
		local.Features[name] = &feature
	}
	return &local
}

func (l Local) provider(p *Provider) *Provider {
	if !l.Replaces(p) {
		return p
	}
	replaced := *p
	replaced.Kind, replaced.BaseURL, replaced.APIKey = kind.OpenAI, l.ModelURL, nil
	replaced.Headers, replaced.KeyHeader, replaced.NoStreamOptions = nil, "", false
	if p.BillsErrors == nil { // else it stands for a provider that does as the policy says
		replaced.BillsErrors = new(false)
	}
	return &replaced
}

func (l Local) model(m *Model, providers map[string]*Provider) *Model {
	model := *m
	model.Provider = providers[m.Provider.Name]
	if l.Replaces(m.Provider) {
		model.MaxTokensField = cmp.Or(m.MaxTokensField, "max_tokens")
		model.Extra = nil
	}
	return &model
}
