package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Notes has a sentence for each part that does not exist because its section was left
// out, and for each setting that is allowed but unwise. None of them is a mistake.
func (p *Policy) Notes() []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	anonymous := p.Tiers[Anonymous]

	if p.Auth == nil {
		var tiers []string
		for _, name := range slices.Sorted(maps.Keys(p.Tiers)) {
			if !p.Reached(name) {
				tiers = append(tiers, name)
			}
		}
		switch beyond := len(p.Tiers) > 1 || p.Tiers[Anonymous] == nil; {
		case tiers == nil && beyond:
			note("auth is left out: a caller with a token gets 401, and users are those for whom a backend vouches.")
		case tiers != nil:
			note("auth is left out: the tiers beyond anonymous (%s) do not exist, and a caller with a token gets 401.", strings.Join(tiers, ", "))
		default:
			note("auth is left out: tiers beyond anonymous do not exist, and a caller with a token gets 401.")
		}
	}
	if anonymous == nil {
		note("tiers.anonymous is left out: a caller without a token gets 401.")
	}
	if p.CORS == nil {
		note("cors is left out: cross-origin callers do not exist, and pages of other origins are refused.")
	} else {
		for _, origin := range p.CORS.Origins {
			if strangers := origin.strangers(); strangers != "" {
				note("cors.origins has %s: pages of strangers may call, too, since %s.", origin, strangers)
			}
		}
	}
	switch {
	case len(p.Pools) == 0:
		note("pools is left out: ceilings do not exist, and nothing bounds what all callers cost together.")
	case p.Pools[PoolAll] == nil:
		for _, name := range slices.Sorted(maps.Keys(p.Tiers)) {
			if p.Tiers[name].Pool == "" {
				note("pools has no %s and tiers.%s no pool: nothing bounds what the callers of that tier cost together.", PoolAll, name)
			}
		}
	}
	if p.Challenge == nil {
		note("challenge is left out: challenges do not exist.")
		if anonymous != nil {
			if anonymous.ChallengeAt > 0 {
				note("tiers.anonymous.challenge_at has no effect without challenge.")
			}
			if anonymous.Passes != nil {
				note("tiers.anonymous.passes has no effect without challenge.")
			}
		}
		if p.Alarm != nil && p.Alarm.Fuse == "challenge" {
			note("alarm.fuse is challenge, which has no effect without challenge.")
		}
	}
	if anonymous != nil && anonymous.Network == nil {
		note("tiers.anonymous.network is left out: the clients of one network are not limited together, and a script that changes its user agent is stopped by a pool alone.")
	}
	for _, name := range p.BackendNames() {
		if free := p.freeThrough(p.Backends[name]); len(free) > 0 {
			note("backends.%s: calls to %s cost nothing, so its pool does not bound them, however many ids it makes up. Give their models a price.", name, strings.Join(free, ", "))
		}
	}
	if p.CloudFront == nil {
		note("cloudfront is left out: TLS signals do not exist, and the clients of a network are told apart by user agent alone.")
	}
	if p.Admin == nil {
		note("admin is left out: the ARN allow-list does not exist, and every AWS identity that may call the admin routes is an administrator.")
	}
	if p.Alarm == nil {
		note("alarm is left out: the alarm does not exist, and nobody is told of unusual spending.")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Providers)) {
		provider := p.Providers[name]
		if u, err := url.Parse(provider.BaseURL); err == nil && u.Scheme == "http" && !loopback(u) {
			note("providers.%s.base_url is http: prompts and the key travel in the clear.", name)
		}
		if provider.BillsErrors == nil {
			taken, charges := false, "charges nothing"
			if provider.MayBillErrors() {
				taken, charges = true, "may charge"
			}
			note("providers.%s.bills_errors is left out: %t is taken, since %s %s for calls that it answers with 400, 422, 500 or 502.", name, taken, cmp.Or(provider.host(), "Bedrock"), charges)
		}
		for _, n := range provider.notes() {
			note("providers.%s.%s", name, n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Models)) {
		var extra struct {
			ServiceTier any `json:"service_tier"`
			Thinking    struct {
				Budget any `json:"budget_tokens"`
			} `json:"thinking"`
		}
		m := p.Models[name]
		_ = json.Unmarshal(m.Extra, &extra) // what is of another kind tells nothing
		if extra.ServiceTier != nil {
			note("models.%s.extra.service_tier changes what %s charges: price_per_mtok must have the prices of that tier.", name, m.Provider.Name)
		}
		if extra.Thinking.Budget != nil {
			note("models.%s.extra.thinking.budget_tokens (%v) must be below the output cap of each call: %s refuses a call whose caller asks for less.", name, extra.Thinking.Budget, m.Provider.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Features)) {
		f := p.Features[name]
		for _, closed := range p.closed(f) {
			note("features.%s.allow has %s, but nobody who may call it may send any: see max_%s of its tiers.", name, closed, closed)
		}
		if f.Reasoning && f.System != "" {
			note("features.%s.reasoning is true: callers see what the model thinks, which often quotes the system prompt.", name)
		}
		provider, longest := f.Model.Provider, p.longestAnswer(f)
		if provider.inTime(longest) {
			continue
		}
		ends := "longer answers end in a timeout"
		if !f.Model.Stream {
			ends += ", and since they come in one piece, some of them in a row look like an outage"
		}
		note("features.%s may answer with %d tokens, which takes more than %d a second to fit providers.%s.timeout (%s): %s.", name, longest, tokensPerSecond, provider.Name, provider.Timeout, ends)
	}
	return notes
}

// closed is what f takes of callers and none of its tiers lets them send.
func (p *Policy) closed(f *Feature) (list []string) {
	tools, images := f.AllowTools, f.AllowImages
	for name, t := range p.Tiers {
		if f.AllowedFor(name) && p.Reached(name) {
			tools, images = tools && t.MaxTools == 0, images && t.MaxImages == 0
		}
	}
	if tools {
		list = append(list, "tools")
	}
	if images {
		list = append(list, "images")
	}
	return list
}

// longestAnswer is the largest output cap of any caller of f.
func (p *Policy) longestAnswer(f *Feature) (longest int64) {
	for name, t := range p.Tiers {
		if f.AllowedFor(name) {
			longest = max(longest, min(f.MaxOutputTokens, t.MaxOutputTokens))
		}
	}
	return longest
}
