// Package exposure says what abuse can cost in an hour, from the configuration
// alone: without the bundle, and with its limits and pools.
//
// Guarantees: every amount with the bundle is an upper bound for an hour, in exact
// money, under the assumptions that Report.Assumptions lists. A pool counts at its
// ceiling. Within a line, the amount with the bundle is never above the one without
// it. No client costs more than its network, no number of networks costs more than
// all anonymous callers, and nobody costs more than everybody.
//
// Trusted: the prices in the configuration, and that a provider bills no call above
// its worst case; Report.Assumptions says what follows where a provider reports more.
// Not trusted: what a provider answers. It may bill a call that it answers with an
// error, and a call that it never answers.
package exposure

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// CallsPerMinute is how many calls one caller sends where nothing limits it. A script
// once made 41,000 requests in 90 minutes, which is 456 a minute.
const CallsPerMinute = 456

// free is named as the bound of callers who can call only models that cost nothing.
const free = "free models"

// networks is how many networks a script with rented addresses has.
const networks = 1000

// Who is a caller, or several.
type Who string

// From one browser to everybody.
const (
	Client       Who = "client"        // one anonymous client, without a pass
	Network      Who = "network"       // all clients of a network, and its passes
	ManyNetworks Who = "networks_1000" // a thousand networks
	AllAnonymous Who = "all_anonymous"
	OneUser      Who = "user"
	Backend      Who = "backend" // all visitors of a backend
	Everybody    Who = "everybody"
)

// Report is the exposure of a configuration. Amounts are dollars an hour.
type Report struct {
	Summary string `json:"summary"` // one line, for people

	// The dearest of one client, network, user or backend, which whoever can make it take one
	// id after the other has for themselves.
	OneScriptToday    Amount `json:"one_script_without_usd_per_hour"`
	OneScript         Amount `json:"one_script_with_usd_per_hour"`
	OneScriptAnswered Amount `json:"one_script_answered_usd_per_hour"` // of OneScript: calls that are answered
	Everybody         Amount `json:"everybody_with_usd_per_hour"`

	Lines       []Line   `json:"lines"`
	Alarm       Alarm    `json:"suggested_alarm"`
	Assumptions []string `json:"assumptions"`
}

// Line is the exposure to one kind of caller.
type Line struct {
	Who         Who    `json:"who"`
	Tier        string `json:"tier,omitempty"`    // empty: all
	Backend     string `json:"backend,omitempty"` // empty: those who call for themselves, too
	Feature     string `json:"feature,omitempty"` // empty: all of the tier's, in the dearest mix
	DearestCall Amount `json:"dearest_call_usd"`
	Without     Amount `json:"without_usd_per_hour"`
	With        Amount `json:"with_usd_per_hour"`    // what limits and pools admit, whatever the provider answers and bills
	By          string `json:"bounded_by,omitempty"` // a limit, a pool or a sum; empty: nothing
	// The same of the limits alone.
	Limits   Amount `json:"limits_usd_per_hour"`
	LimitsBy string `json:"limits_bounded_by,omitempty"`
	// Answered is the part of With that answered calls can cost. A call that gave its
	// caller nothing may have been billed, but takes no tokens, and none of a pass's
	// calls. So the limits on those bound answered calls alone.
	Answered   Amount `json:"answered_usd_per_hour"`
	AnsweredBy string `json:"answered_bounded_by,omitempty"`
}

// Alarm is a suggestion for the section of that name.
type Alarm struct {
	Threshold Amount `json:"threshold_usd"` // Unbounded: none can be told
	Factor    int64  `json:"factor"`        // times the highest normal hour
	Why       string `json:"why"`
}

// Of works out the exposure of p.
func Of(p *policy.Policy) Report {
	var r Report
	total := everybody(p)
	for _, t := range tiers(p) {
		features := p.FeatureNames(t.Name)
		r.add(p, t, "", menuOf(p, t, features...))
		for _, f := range features {
			r.add(p, t, f, menuOf(p, t, f))
		}
	}
	for _, name := range p.BackendNames() {
		r.addBackend(p, p.Backends[name])
	}
	for _, l := range r.Lines {
		total.DearestCall = max(total.DearestCall, l.DearestCall)
		switch l.Who {
		case ManyNetworks, AllAnonymous, Everybody: // many scripts
		case Client, Network, OneUser, Backend:
			r.OneScript = max(r.OneScript, l.With)
			r.OneScriptAnswered = max(r.OneScriptAnswered, l.Answered)
			r.OneScriptToday = max(r.OneScriptToday, unlimited(l.DearestCall))
		}
	}
	if total.DearestCall == 0 { // free models, or nobody can call anything
		total = Line{Who: Everybody, By: free, AnsweredBy: free}
	}
	// Limits that are looser than the assumption make today no better.
	if r.OneScript != Unbounded {
		r.OneScriptToday = max(r.OneScriptToday, r.OneScript)
	}
	r.Lines = append(r.Lines, total)
	r.Everybody = total.With
	r.Summary = r.summary()
	r.Alarm = suggest(r.Everybody)
	r.Assumptions = assumptions
	if len(p.Backends) > 0 {
		r.Assumptions = append(slices.Clone(assumptions), ofBackends)
	}
	return r
}

// add adds the lines of a tier's callers that ask for what is on the menu.
func (r *Report) add(p *policy.Policy, t *policy.Tier, feature string, m menu) {
	pools := nothing
	for _, pool := range p.PoolsFor(t) {
		pools = pools.or(poolBound(pool))
	}
	if m.dearest == 0 {
		pools = bound{by: free}
	}
	answered := limitsOf(p, t, m, answered)
	for i, of := range limitsOf(p, t, m, billed) {
		limits, with := of.bound, of.or(pools)
		// Answered calls are some of those that may be billed.
		ofAnswered := answered[i].or(with)
		r.Lines = append(r.Lines, Line{
			Who: of.who, Tier: t.Name, Feature: feature, DearestCall: m.dearest,
			Without: without(of.who, m.dearest, with.amount), With: with.amount, By: with.by,
			Limits: limits.amount, LimitsBy: limits.by,
			Answered: ofAnswered.amount, AnsweredBy: ofAnswered.by,
		})
	}
}

// addBackend adds the line of all visitors of a backend, which their limits do not bound:
// ids are free to rotate.
func (r *Report) addBackend(p *policy.Policy, b *policy.Backend) {
	served := slices.DeleteFunc(tiers(p), func(t *policy.Tier) bool { return !b.Serves(t.Name) })
	var dearest Amount
	for _, t := range served {
		dearest = max(dearest, menuOf(p, t, p.FeatureNames(t.Name)...).dearest)
	}
	with := together(p, served).or(poolBound(b.Pool))
	if dearest == 0 {
		with = bound{by: free}
	}
	r.Lines = append(r.Lines, Line{
		Who: Backend, Backend: b.Name, DearestCall: dearest, Without: without(Backend, dearest, with.amount),
		With: with.amount, By: with.by, Limits: Unbounded, Answered: with.amount, AnsweredBy: with.by,
	})
}

// boundOf is the bound of some callers.
type boundOf struct {
	who Who
	bound
}

// limitsOf is what the limits of a tier's callers let through of some calls. The callers
// and their order do not depend on the calls.
func limitsOf(p *policy.Policy, t *policy.Tier, m menu, of calls) []boundOf {
	own := limits{tokens: t.Tokens, requests: t.Requests, spend: t.Spend}
	if t.Name != policy.Anonymous {
		return []boundOf{{OneUser, own.admit(m, time.Hour, of)}}
	}
	shared := nothing
	if n := t.Network; n != nil {
		shared = limits{tokens: n.Tokens, requests: n.Requests}.admit(m, time.Hour, of)
	}
	network := shared
	if p.Challenge != nil && t.Passes != nil {
		network = withPasses(shared, t.Passes, own, m, of)
	}
	return []boundOf{
		{Client, own.admit(m, time.Hour, of).or(shared)}, {Network, network},
		{ManyNetworks, network.times(networks)}, {AllAnonymous, nothing},
	}
}

// withPasses adds what the passes of a network can cost. A pass that was obtained
// before the hour can be used in the hour, if its life reaches into it.
func withPasses(shared bound, passes *policy.Passes, own limits, m menu, of calls) bound {
	count := within(&passes.Limit, time.Hour+passes.TTL)
	own.calls = int64(passes.Calls)
	each := own.admit(m, min(passes.TTL, time.Hour), of)
	return boundBy(shared.amount.plus(each.amount.times(count)),
		"%s %s + %s passes x %s", shared.by, shared.amount, thousands(count), each.amount)
}

// everybody is the line of all callers together.
func everybody(p *policy.Policy) Line {
	b := together(p, tiers(p))
	return Line{Who: Everybody, Without: Unbounded, Limits: Unbounded, With: b.amount, By: b.by, Answered: b.amount, AnsweredBy: b.by}
}

// together is the bound of all callers of some tiers. Only pools bound them: `all`, or, if
// every tier has one of its own, their sum.
func together(p *policy.Policy, tiers []*policy.Tier) bound {
	sum, own := bound{}, map[string]bool{}
	for _, t := range tiers {
		pool := p.Pools[t.Pool]
		switch {
		case pool == nil:
			sum = nothing
		case !own[t.Pool]:
			own[t.Pool] = true
			sum = boundBy(sum.amount.plus(poolBound(pool).amount), "the tiers' pools")
		}
	}
	if all := p.Pools[policy.PoolAll]; all != nil {
		sum = poolBound(all).or(sum)
	}
	return sum
}

// tiers are those whose callers can call something, anonymous first.
func tiers(p *policy.Policy) []*policy.Tier {
	var list []*policy.Tier
	for _, name := range slices.Sorted(maps.Keys(p.Tiers)) {
		switch t := p.Tiers[name]; {
		case len(p.FeatureNames(name)) == 0:
		case name == policy.Anonymous:
			list = slices.Insert(list, 0, t)
		case p.Reached(name): // nobody is a user without auth or a backend
			list = append(list, t)
		}
	}
	return list
}

// unlimited is the cost of one caller whom nothing limits but the caps of a call.
func unlimited(dearest Amount) Amount { return dearest.times(CallsPerMinute * 60) }

// without is what the callers of a line can cost without the bundle. It is never below
// the amount with the bundle: where a limit is looser than what callers are assumed to
// send, the limit's amount is taken for both.
func without(who Who, dearest, with Amount) Amount {
	switch {
	case dearest == 0:
		return 0
	case who == AllAnonymous:
		return Unbounded
	case who == ManyNetworks:
		return max(with, unlimited(dearest).times(networks))
	}
	return max(with, unlimited(dearest))
}

func (r *Report) summary() string {
	if len(r.Lines) == 1 {
		return "Nobody can call anything with this configuration."
	}
	today := "One script can cost you $" + r.OneScriptToday.String() + " an hour today; "
	if r.OneScriptToday == Unbounded {
		today = "One script can cost you any amount today; "
	}
	with := fmt.Sprintf("with this configuration $%s", r.OneScriptAnswered)
	if r.OneScript != r.OneScriptAnswered {
		with += fmt.Sprintf(", $%s if the provider bills what it fails", r.OneScript)
	}
	switch {
	case r.Everybody != Unbounded:
		return today + with + fmt.Sprintf(", and everybody together at most $%s.", r.Everybody)
	case r.OneScript != Unbounded:
		return today + with + ", but nothing bounds everybody together: set pools."
	case r.OneScriptAnswered != Unbounded:
		return today + fmt.Sprintf("with this configuration $%s, but nothing bounds it if the provider bills what it fails: set pools.", r.OneScriptAnswered)
	}
	return today + "with this configuration nothing bounds it: set pools, and tiers.anonymous.network."
}

// suggest gives a threshold for the alarm.
func suggest(everybody Amount) Alarm {
	const factor = 4
	if everybody == Unbounded || everybody == 0 {
		return Alarm{Unbounded, factor, "Without a ceiling no number of dollars can be told: compare with the highest normal hour."}
	}
	const least = Amount(price.Dollar / 1_000_000) // that the configuration can express
	threshold := everybody / 5 * 2
	if cent := Amount(price.Dollar / 100); threshold >= cent {
		threshold -= threshold % cent
	} else {
		threshold = max(least, threshold-threshold%least)
	}
	return Alarm{threshold, factor,
		"40% of the most that an hour can cost: whoever is on call has time to act before the ceiling turns everybody away. Raise it if a normal busy hour costs more."}
}

// ofBackends is one more where there are backends.
const ofBackends = "All visitors of a backend count as one script: whoever can make it take one id after the other has what its pool allows. One visitor costs what a client, network or user does."

// assumptions is what the amounts rest on.
var assumptions = []string{
	"Without the bundle, nothing limits a caller but the same caps on input and output. Each client, network and user makes 456 calls a minute, as one script did (41,000 in 90 minutes), and each call is the dearest that the caps allow. Nothing bounds all callers together.",
	"With the bundle, each limit is full at first and is refilled for an hour, so it admits capacity + rate x 1h. The tightest of requests, spend and the pools counts. The provider may bill the worst case of each call, whatever it answers: with an error, late, or not at all.",
	"Answered calls are those that came with a report of what they used. They are also bounded by tokens, at the dearest rate that tokens can have, and by the number of calls of a pass. A call that gave its caller nothing takes neither tokens nor calls of a pass, though it may have been billed.",
	"A provider may report more than the worst case, up to the model's context: for a hidden prompt, or because it ignored a cap. That is charged in full, as debt: an hour may cost that much more, and the hours after it cost that much less.",
	"A network is all its clients, whatever they call themselves, and all passes that it may obtain, as if every challenge were solved. The key of a network changes once a day; in that hour its limits are full once more.",
	"A pool counts with what may be spent at once and what is refilled in an hour, leases included. In no period does it cost more than its ceiling.",
	"Not counted are quotas (a call without an answer gives them back), calls in flight and the fuse. Nor are many accounts in one hand, which only a pool bounds.",
}
