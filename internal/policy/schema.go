package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Values of what may be left out, where zero would not do.
const (
	defaultTimeout        = 60 * time.Second
	defaultTokenizer      = "upper_bound" // never below the truth, whatever the model
	defaultMessages       = 64
	defaultAnonymousChars = 2000
	defaultInFlight       = 8
	defaultAnonymousCalls = 4 // in flight
	defaultTools          = 64
	defaultImages         = 4 // of a call, where a feature takes any
	defaultNetworkCalls   = 32
	defaultAlarmFactor    = 4.0
	defaultAlarmFloor     = 1 * price.Dollar
	defaultAlarmRepeat    = time.Hour
)

// openAIMaxTokensField is the field that OpenAI's own models take. Which one another
// server takes, nobody but the owner knows.
const openAIMaxTokensField = "max_completion_tokens"

// azureKeyHeader bears the key where the host is Azure's.
const azureKeyHeader = "api-key"

// defaultPasses applies where there are challenges and the file says nothing of passes.
// Without a limit on passes, one network could solve challenges for any number of buckets.
func defaultPasses() *Passes {
	return &Passes{
		Limit: Limit{Name: LimitPasses, Unit: Requests, Capacity: 30, Period: time.Hour},
		TTL:   30 * time.Minute,
		Calls: 20,
	}
}

// readPolicy reads the file in the order in which its sections refer to each
// other, whatever their order in it.
func readPolicy(root value) *Policy {
	o := root.object()
	defer o.end()
	p := &Policy{}
	p.Providers = named(o.need("providers"), readProvider)
	p.Models = named(o.need("models"), p.readModel)
	p.Pools = named(o.get("pools"), readPool)
	p.Challenge = readChallenge(o.get("challenge"))
	rank := 0
	p.Tiers = named(o.need("tiers"), func(name string, v value) *Tier {
		t := p.readTier(name, v)
		t.Rank = rank
		rank++
		return t
	}, Anonymous)
	features := o.need("features")
	p.Features = named(features, p.readFeature)
	features.shape.within("propertyNames").except(reserved, clientsChoke)
	p.Auth = p.readAuth(o.get("auth"))
	p.Backends = named(o.get("backends"), p.readBackend)
	p.CORS = readCORS(o.get("cors"))
	p.Fingerprint = readFingerprint(o.get("fingerprint"))
	p.CloudFront = readCloudFront(o.get("cloudfront"))
	p.Admin = readAdmin(o.get("admin"))
	p.Alarm = readAlarm(o.get("alarm"))
	return p
}

func readProvider(name string, v value) *Provider {
	o := v.object()
	defer o.end()
	p := &Provider{
		Name:    name,
		Kind:    kind.Kind(o.need("kind").choice(kind.Names()...)),
		Timeout: cmp.Or(o.get("timeout").duration(100*time.Millisecond, 15*time.Minute), defaultTimeout),
		Stream:  o.get("stream").booleanOr(true),
	}
	if bills := o.get("bills_errors"); bills.given() {
		p.BillsErrors = new(bills.boolean())
	}
	p.NoStreamOptions = !o.get("stream_options").booleanOr(true)
	p.BaseURL = o.get("base_url").baseURL(p.Kind)
	p.APIKey = o.get("api_key").secret()
	keyHeader := o.get("key_header")
	p.KeyHeader = keyHeader.keyHeader()
	if keyHeader.given() && o.ok && !o.entries["api_key"].given() {
		keyHeader.report("must be left out where there is no api_key")
	}
	o.shape.implies(requires("key_header"), requires("api_key"))
	if p.Kind == kind.OpenAI && p.KeyHeader == "" && azureHost.matches(p.host()) {
		p.KeyHeader = azureKeyHeader
	}
	p.Headers = o.get("headers").headers(p.KeyHeader)
	o.needFor(string(kind.OpenAI), string(p.Kind), "base_url", ", such as https://api.openai.com/v1")
	o.needFor(string(kind.Anthropic), string(p.Kind), "api_key", "")
	o.leaveOutFor(string(kind.Bedrock), string(p.Kind), "api_key", ", which signs with the function's own role")
	o.leaveOutFor(string(kind.Bedrock), string(p.Kind), "headers", ", whose requests are signed as they are")
	for _, k := range [...]kind.Kind{kind.Anthropic, kind.Bedrock} {
		o.leaveOutFor(string(k), string(p.Kind), "key_header", "")
		o.leaveOutFor(string(k), string(p.Kind), "stream_options", "")
	}
	return p
}

func readPool(name string, v value) *Pool {
	o := v.object()
	defer o.end()
	// A pool bears every amount that dollars reads: this does not compile otherwise.
	const _ uint64 = bucket.MaxCeiling - maxDollars*uint64(price.Dollar/1_000_000)
	const _ uint64 = uint64(price.Dollar/1_000_000) - bucket.MinCeiling
	return &Pool{
		Name:    name,
		Ceiling: picoDollars(o.need("usd").dollars()),
		Period:  o.need("per").period(maxPeriod),
	}
}

func (p *Policy) readTier(name string, v value) *Tier {
	anonymous := name == Anonymous
	o := v.object()
	defer o.end()
	t := &Tier{
		Name:            name,
		MaxInputChars:   o.get("max_input_chars").integer(maxTokens),
		MaxInputTokens:  o.need("max_input_tokens").integer(maxTokens),
		MaxMessages:     cmp.Or(o.get("max_messages").integer(10_000), defaultMessages),
		MaxOutputTokens: o.need("max_output_tokens").integer(maxTokens),
		MaxInFlight:     int(o.get("max_in_flight").integer(bucket.MaxInFlight)),
		ChallengeAt:     o.get("challenge_at").number(0, 1000),
	}
	mayImages, mayTools := int64(maxImages), int64(defaultTools)
	if anonymous {
		mayImages, mayTools = 0, 0
		t.MaxInputChars = cmp.Or(t.MaxInputChars, defaultAnonymousChars)
		t.MaxInFlight = cmp.Or(t.MaxInFlight, defaultAnonymousCalls)
	}
	t.MaxInFlight = cmp.Or(t.MaxInFlight, defaultInFlight)
	t.MaxImages = o.get("max_images").integerOr(mayImages, maxImages)
	t.MaxTools = o.get("max_tools").integerOr(mayTools, maxTools)

	limits := o.need("limits").object()
	t.Tokens = readLimit(limits.get("tokens"), LimitTokens, Tokens)
	t.Requests = readLimit(limits.get("requests"), LimitRequests, Requests)
	t.Spend = readSpend(limits.get("spend"))
	limits.needOne("tokens", "requests", "spend")
	limits.end()

	pool := o.get("pool")
	if found := refer(pool, "pool", p.Pools); found != nil {
		t.Pool = found.Name
	}
	pool.shape.except([]string{PoolAll}, "")
	if t.Pool == PoolAll {
		pool.report("must be another pool: every call draws on %s already", PoolAll)
	}

	t.Network = readNetwork(o.get("network"))
	t.Passes = readPasses(o.get("passes"))
	if anonymous && p.Challenge != nil && t.Passes == nil {
		t.Passes = defaultPasses()
	}
	if !anonymous {
		for _, key := range [...]string{"challenge_at", "network", "passes"} {
			o.leaveOut(key, "must be left out: it is for tier %s alone", Anonymous)
		}
	}
	return t
}

func readLimit(v value, name string, unit Unit) *Limit {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	return &Limit{
		Name:     name,
		Unit:     unit,
		Capacity: o.need("capacity").integer(maxCapacity),
		Period:   o.need("per").period(maxPeriod),
	}
}

func readSpend(v value) *Limit {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	return &Limit{
		Name:     LimitSpend,
		Unit:     USDMicros,
		Capacity: o.need("usd").dollars(),
		Period:   o.need("per").period(maxPeriod),
	}
}

func readNetwork(v value) *Network {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	n := &Network{
		Tokens:      readLimit(o.get("tokens"), LimitNetworkTokens, Tokens),
		Requests:    readLimit(o.get("requests"), LimitNetworkRequests, Requests),
		MaxInFlight: int(cmp.Or(o.get("max_in_flight").integer(bucket.MaxInFlight), defaultNetworkCalls)),
	}
	o.needOne("tokens", "requests")
	return n
}

func readPasses(v value) *Passes {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	calls := o.need("calls")
	p := &Passes{
		Limit: Limit{
			Name:     LimitPasses,
			Unit:     Requests,
			Capacity: o.need("capacity").integer(maxCapacity),
			Period:   o.need("per").period(maxPeriod),
		},
		// A pass is bound to a network, whose key changes once a day.
		TTL:   o.need("ttl").period(day),
		Calls: int(calls.integer(maxCapacity)),
	}
	if most := p.maxCalls(); p.TTL > 0 && int64(p.Calls) > most {
		calls.report("must be at most %d where ttl is %s: no call may come back while the pass lives, so that all of them take calls x (ttl + 1m) to come back, and that is at most %s", most, formatDuration(p.TTL), formatDuration(maxPeriod))
	}
	return p
}

func (p *Policy) readAuth(v value) *Auth {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	a := &Auth{
		Issuer:    o.need("issuer").text(),
		Audience:  o.need("audience").text(),
		PlanClaim: o.get("plan_claim").text(),

		AssumeEmailVerified: o.get("email_verified").choice("claim", "assume") == "assume",
	}
	a.Plans = p.readPlans(o.get("plans"))
	if o.ok && o.entries["plans"].given() && !o.entries["plan_claim"].given() {
		o.r.report(join(o.path, "plan_claim"), "is required where there are plans")
	}
	o.shape.implies(requires("plans"), requires("plan_claim"))
	keys := o.need("jwks_url")
	if u := keys.webURL(); u != nil {
		a.JWKSURL = u.String()
		if u.Scheme != "https" && !loopback(u) {
			keys.report("must be https: whoever can change the keys on their way can pretend to be anybody")
		}
	}
	return a
}

// readPlans gives the tier that each value of the claim names.
func (p *Policy) readPlans(v value) map[string]string {
	if !v.given() {
		return nil
	}
	plans := map[string]string{}
	v.shape.within("propertyNames").except([]string{Anonymous}, "")
	named(v, func(tier string, v value) *[]value {
		if v.shape == nil && (tier == Anonymous || p.Tiers != nil && p.Tiers[tier] == nil) {
			v.report("must be a tier of signed-in users")
		}
		items := v.list("values of plan_claim")
		for _, item := range items {
			item.shape.set("type", "string").set("minLength", 1)
			plan, ok := item.scalar("text (in quotes if it looks like a number)", "!!str")
			switch {
			case !ok || item.shape != nil:
			case plan == "":
				item.report("must not be empty")
			case plans[plan] != "":
				item.report("stands twice in plans")
			case p.Tiers[plan] != nil && plan != tier:
				item.report("is the name of another tier")
			}
			plans[plan] = tier
		}
		return &items
	})
	return plans
}

func readCORS(v value) *CORS {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	c := &CORS{}
	o.need("origins").texts("origins", func(item value, text string) {
		item.shape.set("pattern", originShape.pattern)
		origin, ok := ParseOrigin(text)
		if !ok {
			item.report(aboutOrigins)
		}
		c.Origins = append(c.Origins, origin)
	})
	return c
}

func readChallenge(v value) *Challenge {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	verifiers := []string{"turnstile", "hcaptcha", "recaptcha"}
	c := &Challenge{Kind: o.need("kind").choice(append([]string{"altcha"}, verifiers...)...)}
	if s := o.need("secret").secret(); s != nil {
		c.Secret = *s
	}
	host := o.get("hostname")
	c.SiteKey, c.Hostname = o.get("site_key").text(), host.text()
	host.shape.set("pattern", `^[^/:\s]+$`)
	if strings.ContainsAny(c.Hostname, "/:") {
		host.report("must be a host name alone, such as app.example.com")
	}
	for _, key := range [...]string{"site_key", "hostname"} {
		o.leaveOutFor("altcha", c.Kind, key, "")
	}
	for _, word := range verifiers {
		o.needFor(word, c.Kind, "site_key", "")
	}
	return c
}

func readFingerprint(v value) *Fingerprint {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	f := &Fingerprint{}
	if s := o.need("secret").secret(); s != nil {
		f.Secret = *s
	}
	return f
}

func readCloudFront(v value) *CloudFront {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	c := &CloudFront{}
	for _, item := range o.need("origin_secrets").list("references to secrets") {
		if s := item.secret(); s != nil {
			c.OriginSecrets = append(c.OriginSecrets, *s)
		}
	}
	if u := o.get("url").webURL(); u != nil {
		c.URL = strings.TrimRight(u.String(), "/")
	}
	c.Required = o.get("required").boolean()
	return c
}

var arnShape = rarely("arn:", `^arn:[a-z-]+:(iam|sts):[a-z0-9-]*:[0-9]{12}:.+$`)

func readAdmin(v value) *Admin {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	a := &Admin{AllowARNs: o.get("allow_arns").texts("ARNs", func(item value, arn string) {
		item.shape.set("pattern", arnShape.pattern)
		if !arnShape.matches(arn) {
			item.report("must be the ARN of an IAM identity, such as arn:aws:iam::123456789012:role/support")
		}
	})}
	keys := named(o.get("keys"), func(name string, v value) *AdminKey {
		k := &AdminKey{Name: name}
		for _, item := range v.list("references to secrets") {
			if s := item.secret(); s != nil {
				k.Secrets = append(k.Secrets, *s)
			}
		}
		return k
	})
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		a.Keys = append(a.Keys, *keys[name])
	}
	o.needOne("allow_arns", "keys")
	return a
}

func readWebhook(v value) *Webhook {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	w := &Webhook{Secret: o.get("secret").secret()}
	if s := o.need("url").secret(); s != nil {
		w.URL = *s
	}
	return w
}

func readAlarm(v value) *Alarm {
	if !v.given() {
		return nil
	}
	o := v.object()
	defer o.end()
	a := &Alarm{
		Threshold:   picoDollars(o.get("threshold_usd").dollars()),
		Factor:      o.get("factor").number(1, 1000),
		Floor:       cmp.Or(picoDollars(o.get("floor_usd").dollars()), defaultAlarmFloor),
		RepeatEvery: cmp.Or(o.get("repeat_every").period(maxPeriod), defaultAlarmRepeat),
		Fuse:        cmp.Or(o.get("fuse").choice("none", "challenge", "anonymous_off", "open"), "none"),
		Webhook:     readWebhook(o.get("webhook")),
	}
	if a.Threshold == 0 && a.Factor == 0 {
		a.Factor = defaultAlarmFactor
	}
	return a
}
