// Package policy reads tokenfuse.yaml: who may spend how much on what.
//
// Guarantees: a Policy that Parse returns is whole. Every name in it refers to
// something that exists, every model has a price and a tokenizer, and the
// dearest call that a tier may make fits each of its limits and pools, so that
// no caller is denied for ever. Amounts of money are exact; none passes through
// floating point. A file with mistakes gives all of them, each with its line,
// and no Policy.
//
// The file is the owner's. What it asks for is trusted; its form is not: its size, its
// nesting and its numbers are bounded. It holds references to secrets and never a secret.
// If somebody has put a secret there by mistake, no message repeats it.
package policy

import (
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Names with a meaning of their own.
const (
	Anonymous = "anonymous" // the tier of callers without a token
	User      = "user"      // the tier of signed-in callers without a plan of their own
	PoolAll   = "all"       // the pool that every call draws on
)

// Names of limits. A feature's quota bears the feature's name.
const (
	LimitTokens          = "tokens"
	LimitRequests        = "requests"
	LimitSpend           = "spend"
	LimitNetworkTokens   = "network_tokens"
	LimitNetworkRequests = "network_requests"
	LimitPasses          = "passes"
	LimitInFlight        = "in_flight"
	LimitPassCalls       = "pass_calls"
	LimitSiteverify      = "siteverify"
)

// Policy is a checked configuration. It is not changed after Parse.
type Policy struct {
	Providers map[string]*Provider
	Models    map[string]*Model
	Features  map[string]*Feature
	Tiers     map[string]*Tier
	Pools     map[string]*Pool // empty: no ceilings
	Backends  map[string]*Backend

	// Sections that may be left out; nil then.
	Auth        *Auth
	CORS        *CORS
	Challenge   *Challenge
	Fingerprint *Fingerprint // never nil when there is an anonymous tier or a backend
	CloudFront  *CloudFront
	Admin       *Admin
	Alarm       *Alarm
}

// Provider is an account with a seller of model calls.
type Provider struct {
	Name    string
	Kind    kind.Kind
	BaseURL string        // http(s), no slash at the end of its path, a query perhaps; empty: the kind's own, never for openai
	APIKey  *Secret       // nil: the provider is called without a key
	Timeout time.Duration // of a whole call; 60 s by default
	Stream  bool          // whether its models stream, where a model does not say; true by default
	// BillsErrors says whether a call may be charged that is answered with 400, 422, 500
	// or 502. nil: the file does not say, and MayBillErrors decides.
	BillsErrors *bool
	// Headers go with every call, by their canonical names; nil: none. They hold no secret,
	// as the file does not, but are not for logs either.
	Headers map[string]string
	// Of kind openai alone. KeyHeader bears the key; empty: Authorization does, as a bearer
	// token. With NoStreamOptions a stream is not asked for its usage.
	KeyHeader       string
	NoStreamOptions bool
}

// Secret says where a secret is kept. Either one of the three is set, or Env and one of
// the other two, which counts if the variable is not set.
type Secret struct {
	Env    string // name of an environment variable
	SSM    string // name or ARN of an SSM parameter
	Secret string // name or ARN of a Secrets Manager secret
}

// Model is a provider's model with its prices.
type Model struct {
	Name           string
	Provider       *Provider
	ID             string // the provider's own id
	Tokenizer      string // one of tokens.Names; upper_bound by default
	Context        int64  // tokens, input and output together
	MaxTokensField string // only of kind openai: max_tokens or max_completion_tokens; OpenAI's own has the latter by default
	Stream         bool   // it is asked to stream, whatever the caller wants; as the provider by default
	Prices         price.Table
	Embeds         bool            // it makes vectors of texts and nothing else; Context is of one text then
	Images         *count.Images   // what images cost; nil: it takes none
	Extra          json.RawMessage // an object, whose fields are added to each request; nil: none
}

// Feature is one AI capability; clients name it in the model field.
type Feature struct {
	Name                string
	Model               *Model
	Fallback            *Model // nil: none
	System              string // may be empty
	MaxOutputTokens     int64
	Tiers               []string // as configured; empty: all
	AllowSystem         bool     // callers may send system and developer messages
	AllowResponseFormat bool
	AllowTools          bool  // callers may send function tools
	AllowImages         bool  // callers may send images as data URLs
	AllowImageURLs      bool  // and as addresses from which the provider fetches them
	MaxImages           int64 // of a call; 0: none
	MaxInputs           int64 // texts of a call that embeds them; 0: Model does not
	// Tools are the owner's own, offered where the caller sends none; callers cannot
	// change them.
	Tools []openai.Tool
	// Efforts are what callers may ask for as reasoning_effort, from the least on; nil:
	// nothing.
	Efforts   []string
	Reasoning bool   // callers get the text of the model's reasoning, too
	Quota     *Limit // nil: none; named like the feature
}

// AllowedFor reports whether callers of the tier may use f.
func (f *Feature) AllowedFor(tier string) bool {
	return len(f.Tiers) == 0 || slices.Contains(f.Tiers, tier)
}

// Unit is what a limit counts.
type Unit string

const (
	Tokens    Unit = "tokens"
	Requests  Unit = "requests"
	Calls     Unit = "calls"      // that a pass is good for
	USDMicros Unit = "usd_micros" // millionths of a dollar
)

// Limit is Capacity units, refilled evenly within Period.
type Limit struct {
	Name     string
	Unit     Unit
	Capacity int64         // at least 1, at most 1e12
	Period   time.Duration // whole seconds, 1 s to 366 days
}

// Tier is what one kind of caller may do.
type Tier struct {
	Name            string
	Rank            int   // its place in the file, from 0: of several plans of a user, the last counts
	MaxInputChars   int64 // code points over all messages; 0: no bound of its own
	MaxInputTokens  int64 // system prompt and framing included
	MaxMessages     int64
	MaxOutputTokens int64
	MaxImages       int64 // of a call, on top of what the feature says
	MaxTools        int64 // of a caller's own, likewise
	MaxInFlight     int   // calls at a time, of one identity

	Tokens, Requests, Spend *Limit // nil: no such limit; at least one is set

	ChallengeAt float64 // share of a limit beyond which a challenge is asked; 0, 1 or more: never
	Pool        string  // besides PoolAll; empty: none

	// Of the anonymous tier alone.
	Network *Network // nil: clients of one network are not limited together
	Passes  *Passes  // never nil when there is a Challenge
}

// Network limits all anonymous clients of one network together.
type Network struct {
	Tokens, Requests *Limit // nil: no such limit
	MaxInFlight      int
}

// Passes limits how many solved challenges a network may turn into passes.
type Passes struct {
	Limit
	TTL   time.Duration // how long a pass is good
	Calls int           // and for how many calls
}

// passMargin is for clocks that differ: some processes may accept a pass for that long
// after others have begun to refuse it.
const passMargin = time.Minute

// CallsLimit is the number of calls that a pass is good for, as a limit. It refills so
// slowly that not one call comes back during the life of the pass.
func (p *Passes) CallsLimit() *Limit {
	return &Limit{Name: LimitPassCalls, Unit: Calls, Capacity: int64(p.Calls), Period: (p.TTL + passMargin) * time.Duration(p.Calls)}
}

// maxCalls is the most calls of a pass whose limit keeps within maxPeriod.
func (p *Passes) maxCalls() int64 { return int64(maxPeriod / (p.TTL + passMargin)) }

// Pool is a ceiling in money that many identities share.
type Pool struct {
	Name    string
	Ceiling price.Pico // the most that any rolling Period may cost
	Period  time.Duration
}

// Burst is the part of the ceiling that may be spent at once; the rest comes
// back evenly over the period. No single call may cost more.
func (p *Pool) Burst() price.Pico { return price.Pico(p.ceiling().Burst()) }

// Within is the most that any time d can cost of the pool. If that is beyond int64, it
// is math.MaxInt64.
func (p *Pool) Within(d time.Duration) price.Pico { return price.Pico(p.ceiling().Within(d)) }

func (p *Pool) ceiling() bucket.Ceiling {
	return bucket.Ceiling{Amount: int64(p.Ceiling), Period: p.Period}
}

// Auth says whose tokens make a caller a user.
type Auth struct {
	Issuer, Audience, JWKSURL string
	PlanClaim                 string            // names the tier, or several; empty: every user is of tier user
	Plans                     map[string]string // tiers by values of the claim that are not names of tiers
	AssumeEmailVerified       bool              // of tokens that say nothing of it
}

// CORS says which pages may call.
type CORS struct {
	Origins []Origin
	// Loopback lets all pages of this machine call, too. A file cannot say so: see Locally.
	Loopback bool
}

// Allows reports whether pages of an origin may call.
func (c *CORS) Allows(origin string) bool {
	return c != nil && (c.Loopback && loopbackOrigin(origin) ||
		slices.ContainsFunc(c.Origins, func(o Origin) bool { return o.Matches(origin) }))
}

// Challenge says how a caller shows good will.
type Challenge struct {
	Kind    string // altcha, turnstile, hcaptcha or recaptcha
	Secret  Secret
	SiteKey string // empty for altcha
	// Hostname is what the challenge must have been solved on; empty: anywhere.
	Hostname string
}

// Fingerprint holds the key of the hashes that stand for anonymous callers.
type Fingerprint struct{ Secret Secret }

// CloudFront is the distribution in front of the API.
type CloudFront struct {
	// OriginSecrets are those by which it proves itself: the current one and, while
	// it is rotated, the one before or after.
	OriginSecrets []Secret
	URL           string // where callers reach it, no trailing slash; "": not said
	Required      bool   // calls that did not come through it are refused
}

// Admin says who may call the admin routes: which AWS identities where API Gateway checks
// signatures, whose keys where `tokenfuse serve` does without it.
type Admin struct {
	AllowARNs []string // empty: every AWS identity that IAM lets call
	Keys      []AdminKey
}

// AdminKey is what an administrator proves to be one by.
type AdminKey struct {
	Name string // of the administrator, as the audit has it
	// Secrets are the current one and, while it is rotated, the one before or after.
	Secrets []Secret
}

// Webhook is where `tokenfuse serve` sends its pages.
type Webhook struct {
	URL    Secret  // whoever knows it can write there
	Secret *Secret // by which pages are signed; nil: they are not
}

// Alarm says when spending is abnormal. At least one of Threshold and Factor
// is set.
type Alarm struct {
	Threshold   price.Pico // spent in an hour; 0: none
	Factor      float64    // times the highest normal hour of the past month; 0: not compared
	Floor       price.Pico // below this, Factor raises no alarm; 1 dollar by default
	RepeatEvery time.Duration
	Fuse        string // none, challenge, anonymous_off or open
	Webhook     *Webhook
}

// maxSize bounds the file, in bytes.
const maxSize = 1 << 20

// Load reads and parses a file, or takes the Tree beside it. An error about its content is
// of type Problems.
func Load(file string) (*Policy, error) {
	data, err := read(file)
	if err != nil {
		return nil, err
	}
	return parsed(data, treeBeside(file, data), tokens.New)
}

// LoadUncounted is Load for functions that count no tokens, so that they can be linked
// without the vocabularies. It does not notice a system prompt that is too long for a
// tier. The function that counts notices, and so does `tokenfuse check`.
func LoadUncounted(file string) (*Policy, error) {
	data, err := read(file)
	if err != nil {
		return nil, err
	}
	return parsed(data, treeBeside(file, data), nil)
}

func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// Parse reads and checks a configuration. An error is of type Problems and
// holds every mistake.
func Parse(data []byte) (*Policy, error) { return parsed(data, nil, tokens.New) }

// parsed reads a configuration, of which YAML may have been read already.
func parsed(data []byte, tree *yaml.Node, exact exactTokenizer) (*Policy, error) {
	r := &reader{lines: make(map[string]int)}
	var p *Policy
	root, ok := value{r: r, node: tree}, true
	if tree == nil {
		root, ok = r.document(data)
	}
	if ok {
		p = readPolicy(root)
		p.check(r, exact)
	}
	if len(r.problems) > 0 {
		r.problems.sort()
		return nil, r.problems
	}
	return p, nil
}

// FeatureNames lists the features that the tier may use, sorted.
func (p *Policy) FeatureNames(tier string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.Features)) {
		if p.Features[name].AllowedFor(tier) {
			names = append(names, name)
		}
	}
	return names
}

// TierOf is the tier of a user with these plans: of the tiers that they name, by Auth.Plans
// or by themselves, the last in the file. If they name none, or only that of anonymous callers, which is none of a
// user's, it is User's, and named is false.
func (p *Policy) TierOf(plans []string) (best *Tier, named bool) {
	for _, plan := range plans {
		if p.Auth != nil && p.Auth.Plans[plan] != "" {
			plan = p.Auth.Plans[plan]
		}
		if t := p.Tiers[plan]; t != nil && t.Name != Anonymous && (best == nil || t.Rank > best.Rank) {
			best = t
		}
	}
	if best == nil {
		return p.Tiers[User], false
	}
	return best, true
}

// PoolsFor lists the pools that a call of the tier draws on: PoolAll first, if
// it exists, then the tier's own.
func (p *Policy) PoolsFor(t *Tier) []*Pool {
	var pools []*Pool
	for _, name := range [...]string{PoolAll, t.Pool} {
		if pool := p.Pools[name]; pool != nil {
			pools = append(pools, pool)
		}
	}
	return pools
}

// WorstCase is the dearest call that t may make to f: all the input that it may
// send and all the output that it may get, at the rates of the dearer of the
// feature's models.
func (p *Policy) WorstCase(f *Feature, t *Tier) (tokens int64, money price.Pico) {
	output := min(f.MaxOutputTokens, t.MaxOutputTokens)
	for _, m := range f.Models() {
		money = max(money, m.Prices.WorstCase(t.MaxInputTokens, output))
	}
	return t.MaxInputTokens + output, money
}

// LongestPeriod is the longest of the periods of all limits, quotas and pools, and of the
// life of a pass. The period of CallsLimit does not count: the calls of a pass need not be
// remembered longer than the pass is good.
func (p *Policy) LongestPeriod() time.Duration {
	var longest time.Duration
	take := func(limits ...*Limit) {
		for _, l := range limits {
			if l != nil {
				longest = max(longest, l.Period)
			}
		}
	}
	for _, f := range p.Features {
		take(f.Quota)
	}
	for _, t := range p.Tiers {
		take(t.Tokens, t.Requests, t.Spend)
		if t.Network != nil {
			take(t.Network.Tokens, t.Network.Requests)
		}
		if t.Passes != nil {
			take(&t.Passes.Limit)
			longest = max(longest, t.Passes.TTL+passMargin)
		}
	}
	for _, pool := range p.Pools {
		longest = max(longest, pool.Period)
	}
	return longest
}

// UsedProviders are the providers of the models that features may call, sorted by name. A
// provider that is in the file but is not used needs no key.
func (p *Policy) UsedProviders() []*Provider {
	used := map[string]*Provider{}
	for _, f := range p.Features {
		for _, m := range f.Models() {
			used[m.Provider.Name] = m.Provider
		}
	}
	var list []*Provider
	for _, name := range slices.Sorted(maps.Keys(used)) {
		list = append(list, used[name])
	}
	return list
}

// Secrets are those that calls need: the keys of used providers, the secrets of the keys
// and challenges of anonymous callers, CloudFront's and the backends'.
func (p *Policy) Secrets() []Secret {
	var list []Secret
	for _, provider := range p.UsedProviders() {
		if provider.APIKey != nil {
			list = append(list, *provider.APIKey)
		}
	}
	if p.Fingerprint != nil {
		list = append(list, p.Fingerprint.Secret)
	}
	if p.Challenge != nil {
		list = append(list, p.Challenge.Secret)
	}
	if p.CloudFront != nil {
		list = append(list, p.CloudFront.OriginSecrets...)
	}
	for _, name := range p.BackendNames() {
		list = append(list, p.Backends[name].Secrets...)
	}
	return list
}

// callMargin is for admitting and settling a call.
const callMargin = 10 * time.Second

// LongestCall is the longest time from a call's reservation to its settle.
func (p *Policy) LongestCall() time.Duration {
	var longest time.Duration
	for _, provider := range p.Providers {
		longest = max(longest, provider.Timeout)
	}
	return longest + callMargin
}

// Models are the models that may answer a call to f: its own, then its fallback.
func (f *Feature) Models() []*Model {
	var models []*Model
	for _, m := range [...]*Model{f.Model, f.Fallback} {
		if m != nil {
			models = append(models, m)
		}
	}
	return models
}

// loopback reports whether u stays on this machine.
func loopback(u *url.URL) bool {
	switch u.Hostname() {
	case "localhost", "127.0.0.1", "::1":
		return true
	}
	return false
}
