package chatapi

import (
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// A body is larger where images may be in it. It is read before anybody knows whose it is and
// what it calls; so it is held against the bound of each as soon as they are known.

// mostBytes bounds what is read: by what any feature takes of anybody.
func mostBytes(p *policy.Policy) int64 {
	for _, t := range p.Tiers {
		if most := mostOf(p, t); most > openai.MaxText {
			return most
		}
	}
	return openai.MaxText
}

// mostOf bounds the bodies of callers of a tier.
func mostOf(p *policy.Policy, t *policy.Tier) int64 {
	for _, f := range p.Features {
		if most := mostFor(f, t); most > openai.MaxText {
			return most
		}
	}
	return openai.MaxText
}

// mostFor bounds their bodies when they call a feature.
func mostFor(f *policy.Feature, t *policy.Tier) int64 {
	if f.AllowImages && f.AllowedFor(t.Name) && min(f.MaxImages, t.MaxImages) > 0 {
		return openai.MaxImages
	}
	return openai.MaxText
}

// fits refuses a body beyond its bound.
func fits(body []byte, most int64) *openai.Error {
	if int64(len(body)) > most {
		return openai.TooLarge(most)
	}
	return nil
}
