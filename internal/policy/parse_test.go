package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// good is a small file without mistakes; the tests change one thing in it.
// Mind the line numbers: want lines name them.
const good = `providers:
  main:
    kind: openai
    base_url: https://api.openai.com/v1
    api_key: {env: API_KEY}
    timeout: 30s
models:
  small:
    provider: main
    id: small-1
    tokenizer: o200k_base
    context: 20000
    max_tokens_field: max_tokens
    price_per_mtok:
      input: "0.40"
      output: "1.60"
  large:
    provider: main
    id: large-1
    context: 20000
    price_per_mtok: {input: "4", cached_input: "1", cache_write: "5", output: "16", long_context: {above: 9000, input: "8", output: "24"}}
features:
  ask:
    model: small
    system: Be brief.
    max_output_tokens: 500
  cv:
    model: small
    fallback: large
    max_output_tokens: 1000
    tiers: [user]
    allow: [system, response_format]
    quota: {capacity: 10, per: 24h}
tiers:
  anonymous:
    max_input_chars: 2000
    max_input_tokens: 2000
    max_messages: 16
    max_output_tokens: 400
    max_in_flight: 4
    limits:
      tokens: {capacity: 5000, per: 1h}
      requests: {capacity: 20, per: 1m}
    challenge_at: 0.5
    pool: anonymous
    network:
      tokens: {capacity: 50000, per: 1h}
      requests: {capacity: 200, per: 1m}
      max_in_flight: 32
    passes: {capacity: 30, per: 1h, ttl: 30m, calls: 20}
  user:
    max_input_tokens: 10000
    max_output_tokens: 2000
    limits:
      tokens: {capacity: 50000, per: 1h}
      spend: {usd: "2.00", per: 24h}
pools:
  anonymous: {usd: "2.00", per: 1h}
  all: {usd: "20.00", per: 1h}
auth:
  issuer: https://id.example.com/
  audience: app
  jwks_url: https://id.example.com/jwks.json
  plan_claim: plan
cors:
  origins: ["https://app.example.com", "http://localhost:5173"]
challenge:
  kind: altcha
  secret: {env: CHALLENGE_SECRET}
fingerprint:
  secret: {env: FINGERPRINT_SECRET, ssm: /app/fingerprint}
cloudfront:
  origin_secrets: [{ssm: /app/origin-1}, {secret: app/origin-2}]
  url: https://ai.example.com/
  required: true
admin:
  allow_arns: ["arn:aws:iam::123456789012:role/support"]
  keys: {bob: [{env: KEY_3}], ann: [{env: KEY_1}, {ssm: /app/key-2}]}
alarm:
  threshold_usd: "8.00"
  factor: 4
  floor_usd: "1.00"
  repeat_every: 1h
  fuse: challenge
  webhook: {url: {env: WEBHOOK_URL}, secret: {secret: app/webhook}}
`

// problemsOf gives "line path" of each mistake.
func problemsOf(t *testing.T, file string) (places []string, text string) {
	t.Helper()
	p, err := Parse([]byte(file))
	if err == nil {
		return nil, ""
	}
	var problems Problems
	check.Must(t, errors.As(err, &problems) && p == nil, "got %v, %T, want nil, Problems", p, err)
	for _, problem := range problems {
		places = append(places, strings.TrimSpace(fmt.Sprintf("%d %s", problem.Line, problem.Path)))
	}
	return places, err.Error()
}

func TestGood(t *testing.T) {
	t.Parallel()
	if places, text := problemsOf(t, good); places != nil {
		t.Fatal(text)
	}
}

// mistakes are made in the good file, one each.
var mistakes = []struct {
	name     string
	old, new string // replaced once in good; old must be unique
	want     string // "line path", several separated by " | "
	says     string // part of the message
}{
	// The file as a whole.
	{"empty", good, "", "1", "empty"},
	{"only comments", good, "# nothing\n\n", "1", "empty"},
	{"a list", good, "- providers\n", "1", "mapping"},
	{"a text", good, "providers\n", "1", "mapping"},
	{"null", good, "~\n", "1", "no value"},
	{"two documents", "features:\n", "---\nfeatures:\n", "22", "one document"},
	{"broken flow", "api_key: {env: API_KEY}", "api_key: {env: API_KEY", "6", "not valid YAML"},
	{"tab", "    id: small-1", "\tid: small-1", "10", "not valid YAML"},
	{"invalid UTF-8", "id: small-1", "id: small-\xff", "10", "UTF-8"},
	{"control character", "id: small-1", "id: small-\x01", "10", "control"},
	{"unknown alias", "id: small-1", "id: *small", "10", "aliases"},
	{"deep nesting", "id: small-1", "id: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "10", "depth"},
	{"too large", good, "# " + strings.Repeat("x", 1<<20) + "\n" + good, "1", "1 MiB"},
	{"incompatible version", "providers:\n  main:", "%YAML 3.0\n---\nproviders:\n  main:", "1", "YAML"},

	// Keys.
	{"unknown section", "fingerprint:\n", "finger_print:\n", "35 fingerprint | 70 finger_print", "known here: admin, alarm"},
	{"unknown key", "    timeout: 30s", "    time_out: 30s", "6 providers.main.time_out", "known here: api_key, base_url, bills_errors, headers, key_header, kind, stream, stream_options, timeout"},
	{"unknown key in a limit", "spend: {usd: \"2.00\", per: 24h}", "spend: {usd: \"2.00\", per: 24h, capacity: 1}", "56 tiers.user.limits.spend.capacity", "known here: per, usd"},
	{"unknown limit", "requests: {capacity: 20, per: 1m}", "calls: {capacity: 20, per: 1m}", "43 tiers.anonymous.limits.calls", "unknown key"},
	{"keys differ by case", "    kind: openai", "    Kind: openai", "2 providers.main.kind | 3 providers.main.Kind", "is required"},
	{"merge key", "    id: small-1", "    <<: {id: small-1}", "8 models.small.id | 10 models.small.<<", "unknown key"},
	{"duplicate key", "    id: small-1", "    id: small-1\n    id: small-2", "11 models.small.id", "first on line 10"},
	{"duplicate section", "cors:\n", "pools: {}\ncors:\n", "65 pools", "first on line 57"},
	{"duplicate name", "  large:\n", "  small:\n", "17 models.small | 29 features.cv.fallback", "twice"},
	{"key that is no text", "    id: small-1", "    id: small-1\n    [a]: b", "11 models.small", "plain name"},
	{"key in quotes with a line break", "    id: small-1", "    id: small-1\n    \"a\\nb\": c", `11 models.small."a\nb"`, "unknown key"},
	{"very long key", "    id: small-1", "    id: small-1\n    " + strings.Repeat("k", 100) + ": c", `11 models.small."` + strings.Repeat("k", 64) + `..."`, "unknown key"},
	{"anchor", "    id: small-1", "    id: &id small-1", "10 models.small.id", "aliases"},
	{"alias", "    id: small-1", "    id: &id small-1\n    tokenizer: *id", "10 models.small.id | 11 models.small.tokenizer | 12 models.small.tokenizer", "aliases"},
	{"anchor on a mapping, and its content", "  large:\n    provider: main", "  large: &l\n    provider: other", "17 models.large | 18 models.large.provider", "aliases"},
	{"tag", "context: 20000\n    max", "context: !!int \"20000\"\n    max", "12 models.small.context", "tags"},
	{"custom tag on a mapping", "  ask:\n", "  ask: !feature\n", "23 features.ask", "tags"},

	// Types.
	{"section without value", "cors:\n  origins: [\"https://app.example.com\", \"http://localhost:5173\"]", "cors:", "65 cors", "has no value"},
	{"text for a mapping", "api_key: {env: API_KEY}", "api_key: API_KEY", "5 providers.main.api_key", "{env: NAME}"},
	{"list for a mapping", "limits:\n      tokens: {capacity: 50000, per: 1h}\n      spend: {usd: \"2.00\", per: 24h}", "limits: [1]", "54 tiers.user.limits", "mapping"},
	{"text for a list", "tiers: [user]", "tiers: user", "31 features.cv.tiers", "list of tiers"},
	{"mapping for a text", "id: small-1", "id: {a: b}", "10 models.small.id", "must be text"},
	{"number for a text", "id: small-1", "id: 41", "10 models.small.id", "in quotes"},
	{"date for a text", "id: small-1", "id: 2026-11-30", "10 models.small.id", "in quotes"},
	{"bool for a text", "system: Be brief.", "system: true", "25 features.ask.system", "in quotes"},
	{"null for a text", "system: Be brief.", "system:", "25 features.ask.system", "has no value"},
	{"text with a space", "id: small-1", "id: small 1", "10 models.small.id", "without spaces"},
	{"empty text", "id: small-1", `id: ""`, "10 models.small.id", "without spaces"},
	{"text for a number", "max_in_flight: 4", `max_in_flight: "4"`, "40 tiers.anonymous.max_in_flight", "whole number from 1 to"},
	{"bool for a number", "max_in_flight: 4", "max_in_flight: true", "40 tiers.anonymous.max_in_flight", "whole number"},

	// Numbers.
	{"zero", "max_messages: 16", "max_messages: 0", "38 tiers.anonymous.max_messages", "from 1 to 10000"},
	{"negative", "max_messages: 16", "max_messages: -1", "38 tiers.anonymous.max_messages", "from 1 to 10000"},
	{"fraction", "max_messages: 16", "max_messages: 1.5", "38 tiers.anonymous.max_messages", "whole number"},
	{"exponent", "max_messages: 16", "max_messages: 1e3", "38 tiers.anonymous.max_messages", "whole number"},
	{"infinity", "max_messages: 16", "max_messages: .inf", "38 tiers.anonymous.max_messages", "whole number"},
	{"hexadecimal", "max_messages: 16", "max_messages: 0x10", "38 tiers.anonymous.max_messages", "whole number"},
	{"leading zero", "max_messages: 16", "max_messages: 016", "38 tiers.anonymous.max_messages", "whole number"},
	{"underscore", "max_messages: 16", "max_messages: 1_6", "38 tiers.anonymous.max_messages", "whole number"},
	{"beyond int64", "capacity: 10,", "capacity: 99999999999999999999,", "33 features.cv.quota.capacity", "from 1 to 1000000000000"},
	{"too large a number", "max_output_tokens: 500", "max_output_tokens: 100000001", "26 features.ask.max_output_tokens", "from 1 to 100000000"},
	{"challenge_at zero", "challenge_at: 0.5", "challenge_at: 0", "44 tiers.anonymous.challenge_at", "above 0"},
	{"challenge_at negative", "challenge_at: 0.5", "challenge_at: -0.5", "44 tiers.anonymous.challenge_at", "above 0"},
	{"challenge_at not a number", "challenge_at: 0.5", "challenge_at: .nan", "44 tiers.anonymous.challenge_at", "above 0"},
	{"factor of one", "factor: 4", "factor: 1", "81 alarm.factor", "above 1"},

	// Money.
	{"missing price", "      output: \"1.60\"\n", "", "14 models.small.price_per_mtok.output", "is required"},
	{"missing prices", "    price_per_mtok:\n      input: \"0.40\"\n      output: \"1.60\"\n", "", "8 models.small.price_per_mtok", "is required"},
	{"missing long price", "long_context: {above: 9000, input: \"8\", output: \"24\"}", "long_context: {above: 9000, input: \"8\"}", "21 models.large.price_per_mtok.long_context.output", "is required"},
	{"negative price", `input: "0.40"`, `input: "-0.40"`, "15 models.small.price_per_mtok.input", `"0.40"`},
	{"price with an exponent", `input: "0.40"`, `input: 4e-1`, "15 models.small.price_per_mtok.input", "decimal"},
	{"price with a sign", `input: "0.40"`, `input: "$0.40"`, "15 models.small.price_per_mtok.input", "decimal"},
	{"price with a comma", `input: "0.40"`, `input: "0,40"`, "15 models.small.price_per_mtok.input", "decimal"},
	{"price without a leading digit", `input: "0.40"`, `input: .40`, "15 models.small.price_per_mtok.input", "decimal"},
	{"price without a last digit", `input: "0.40"`, `input: "0."`, "15 models.small.price_per_mtok.input", "decimal"},
	{"price with 7 decimals", `input: "0.40"`, `input: "0.4000001"`, "15 models.small.price_per_mtok.input", "6 decimals"},
	{"price in spaces", `input: "0.40"`, `input: " 0.40"`, "15 models.small.price_per_mtok.input", "decimal"},
	{"absurd price", `input: "0.40"`, `input: "10000.000001"`, "15 models.small.price_per_mtok.input", "up to 10000"},
	{"price of null", `input: "0.40"`, `input: ~`, "15 models.small.price_per_mtok.input", "has no value"},
	{"price of true", `input: "0.40"`, `input: true`, "15 models.small.price_per_mtok.input", "decimal"},
	{"spend of zero", `spend: {usd: "2.00"`, `spend: {usd: "0.00"`, "56 tiers.user.limits.spend.usd", "above 0"},
	{"pool with 7 decimals", `all: {usd: "20.00"`, `all: {usd: "20.0000001"`, "59 pools.all.usd", "6 decimals"},
	{"absurd pool", `all: {usd: "20.00"`, `all: {usd: "1000001"`, "59 pools.all.usd", "up to 1000000"},
	{"threshold of zero", `threshold_usd: "8.00"`, `threshold_usd: 0`, "80 alarm.threshold_usd", "above 0"},

	// Durations.
	{"number without a unit", "timeout: 30s", "timeout: 30", "6 providers.main.timeout", "such as 30s"},
	{"timeout too long", "timeout: 30s", "timeout: 16m", "6 providers.main.timeout", "from 100ms to 15m"},
	{"period of zero", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: 0s}", "59 pools.all.per", "from 1s to 366d"},
	{"negative period", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: -1h}", "59 pools.all.per", "duration"},
	{"negative after days", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: 2d-1h}", "59 pools.all.per", "duration"},
	{"half days", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: 1.5d}", "59 pools.all.per", "1d12h"},
	{"days behind", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: 12h1d}", "59 pools.all.per", "1d12h"},
	{"weeks", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: 1w}", "59 pools.all.per", "duration"},
	{"part of a second", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: 1500ms}", "59 pools.all.per", "whole seconds"},
	{"too long a period", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: 366d1s}", "59 pools.all.per", "to 366d"},
	{"very many days", "all: {usd: \"20.00\", per: 1h}", "all: {usd: \"20.00\", per: 99999999999d}", "59 pools.all.per", "to 366d"},
	{"missing period", "requests: {capacity: 20, per: 1m}", "requests: {capacity: 20}", "43 tiers.anonymous.limits.requests.per", "is required"},
	{"a pass with more calls than can be kept from coming back", "calls: 20", "calls: 17002", "50 tiers.anonymous.passes.calls", "at most 17001 where ttl is 30m"},
	{"a pass that lives long", "ttl: 30m, calls: 20", "ttl: 1d, calls: 366", "50 tiers.anonymous.passes.calls", "at most 365 where ttl is 1d"},
	{"more calls in flight than an item holds", "max_in_flight: 32", "max_in_flight: 1001", "49 tiers.anonymous.network.max_in_flight", "from 1 to 1000"},
	{"passes good for days", "ttl: 30m", "ttl: 2d", "50 tiers.anonymous.passes.ttl", "to 1d"},

	// Names and references.
	{"name with a capital", "  cv:\n", "  CV:\n", "27 features.CV", "a-z"},
	{"name too long", "  cv:\n", "  " + strings.Repeat("c", 33) + ":\n", "27 features." + strings.Repeat("c", 33), "1 to 32 characters"},
	{"name with a dot", "  large:\n    provider", "  lar.ge:\n    provider", "17 models.lar.ge | 29 features.cv.fallback", "a-z"},
	{"empty name", "  cv:\n", "  \"\":\n", `27 features.""`, "1 to 32"},
	{"feature named like a limit", "  cv:\n", "  tokens:\n", "27 features.tokens", "like a limit"},
	{"feature named like the limit of passes", "  cv:\n", "  passes:\n", "27 features.passes", "like a limit"},
	{"feature named in_flight", "  cv:\n", "  in_flight:\n", "27 features.in_flight", "like a limit"},
	{"feature named all", "  cv:\n", "  all:\n", "27 features.all", "all"},
	{"feature like o1", "  cv:\n", "  o1-cv:\n", "27 features.o1-cv", "clients"},
	{"feature like gpt-5", "  cv:\n", "  gpt-5-cv:\n", "27 features.gpt-5-cv", "clients"},
	{"feature with codex", "  cv:\n", "  my-codex:\n", "27 features.my-codex", "clients"},
	{"unknown provider", "provider: main\n    id: small-1", "provider: mani\n    id: small-1", "9 models.small.provider", "one of: main"},
	{"unknown provider, and what is wrong beside it", "provider: main\n    id: small-1", "provider: mani\n    stream: maybe\n    id: small-1", "9 models.small.provider | 10 models.small.stream", "true or false"},
	{"unknown model", "  ask:\n    model: small", "  ask:\n    model: tiny", "24 features.ask.model", "one of: large, small"},
	{"unknown fallback", "fallback: large", "fallback: huge", "29 features.cv.fallback", "one of: large, small"},
	{"fallback to itself", "fallback: large", "fallback: small", "29 features.cv.fallback", "another model"},
	{"unknown tier", "tiers: [user]", "tiers: [user, por]", "31 features.cv.tiers[1]", "one of: anonymous, user"},
	{"tier twice", "tiers: [user]", "tiers: [user, user]", "31 features.cv.tiers[1]", "twice"},
	{"no tier", "tiers: [user]", "tiers: []", "31 features.cv.tiers", "list of 1 to"},
	{"unknown pool", "pool: anonymous", "pool: visitors", "45 tiers.anonymous.pool", "one of: all, anonymous"},
	{"pool all", "pool: anonymous", "pool: all", "45 tiers.anonymous.pool", "already"},
	{"unknown tokenizer", "tokenizer: o200k_base", "tokenizer: p50k_base", "11 models.small.tokenizer", "upper_bound"},
	{"unknown kind of provider", "kind: openai", "kind: azure", "3 providers.main.kind", "openai, anthropic, bedrock"},
	{"unknown max_tokens_field", "max_tokens_field: max_tokens", "max_tokens_field: tokens", "13 models.small.max_tokens_field", "max_completion_tokens"},
	{"bills_errors is a word", "    timeout: 30s\n", "    timeout: 30s\n    bills_errors: sometimes\n", "7 providers.main.bills_errors", "true or false"},
	{"stream of a provider is a number", "    timeout: 30s\n", "    timeout: 30s\n    stream: 1\n", "7 providers.main.stream", "true or false"},
	{"stream of a model is a word", "    max_tokens_field: max_tokens\n", "    max_tokens_field: max_tokens\n    stream: never\n", "14 models.small.stream", "true or false"},
	{"unknown thing to allow", "allow: [system, response_format]", "allow: [audio]", "32 features.cv.allow[0]", "one of system, response_format, tools, images, image_urls"},
	{"no features", good[strings.Index(good, "features:\n"):strings.Index(good, "tiers:\n  anonymous")], "features: {}\n", "22 features", "1 to 100 entries"},
	{"too many entries", "pools:\n", "pools:\n" + manyPools(101), "57 pools", "1 to 100 entries"},

	// What sections need.
	{"provider without kind", "    kind: openai\n", "", "2 providers.main.kind", "is required"},
	{"no field for the cap, but of OpenAI", "api.openai.com", "openai.example.com", "17 models.large.max_tokens_field", "is required where the provider is not api.openai.com"},
	{"openai without base_url", "    base_url: https://api.openai.com/v1\n", "", "2 providers.main.base_url", "is required for kind openai"},
	{"anthropic without key", "    kind: openai\n    base_url: https://api.openai.com/v1\n    api_key: {env: API_KEY}", "    kind: anthropic", "2 providers.main.api_key | 11 models.small.max_tokens_field | 30 features.cv.allow", "is required for kind anthropic"},
	{"bedrock with key", "    kind: openai", "    kind: bedrock", "5 providers.main.api_key | 13 models.small.max_tokens_field | 32 features.cv.allow", "own role"},
	{"base_url of another scheme", "base_url: https", "base_url: ftp", "4 providers.main.base_url", "http or https"},
	{"base_url without host", "base_url: https://api.openai.com/v1", "base_url: https:///v1", "4 providers.main.base_url", "http or https"},
	{"base_url with password", "base_url: https://api", "base_url: https://user:hunter2@api", "4 providers.main.base_url", "without user"},
	{"base_url with a key", "openai.com/v1", "openai.com/v1?Api-Key=hunter2", "4 providers.main.base_url", "must have no key in its query"},
	{"base_url with a fragment", "openai.com/v1", "openai.com/v1?a=b#c", "4 providers.main.base_url", "without user and fragment"},
	{"base_url with an unreadable query", "openai.com/v1", "openai.com/v1?a=%zz", "4 providers.main.base_url", "has a query that is none"},
	{"base_url of the whole way", "openai.com/v1", "openai.com/v1/chat/completions?api-version=1", "4 providers.main.base_url", "must end before /chat/completions"},
	{"base_url of the way to embeddings", "openai.com/v1", "openai.com/v1/embeddings/", "4 providers.main.base_url", "must end before /embeddings"},
	{"key_header of no key", "    api_key: {env: API_KEY}", "    key_header: api-key", "5 providers.main.key_header", "where there is no api_key"},
	{"key_header of ours", "    timeout: 30s\n", "    key_header: content-type\n", "6 providers.main.key_header", "that is not set otherwise"},
	{"key_header that is none", "    timeout: 30s\n", "    key_header: \"a:b\"\n", "6 providers.main.key_header", "name of a header"},
	{"stream_options is a mapping", "    timeout: 30s\n", "    stream_options: {include_usage: false}\n", "6 providers.main.stream_options", "true or false"},
	{"settings of kind openai alone", "    kind: openai", "    kind: bedrock\n    key_header: k\n    stream_options: false\n    headers: {a: b}", "4 providers.main.key_header | 5 providers.main.stream_options | 6 providers.main.headers | 8 providers.main.api_key | 16 models.small.max_tokens_field | 35 features.cv.allow", "left out for kind bedrock"},
	{"bedrock with a query", "    kind: openai\n    base_url: https://api.openai.com/v1\n    api_key: {env: API_KEY}", "    kind: bedrock\n    base_url: https://b.example.com?a=b", "4 providers.main.base_url | 12 models.small.max_tokens_field | 31 features.cv.allow", "must have no query for kind bedrock"},
	{"headers are a list", "    timeout: 30s\n", "    headers: [a]\n", "6 providers.main.headers", "mapping of names"},
	{"no headers", "    timeout: 30s\n", "    headers: {}\n", "6 providers.main.headers", "1 to 100"},
	{"header of ours", "    timeout: 30s\n", "    headers: {content-type: text/plain}\n", "6 providers.main.headers.content-type", "or HTTP itself sets it"},
	{"header of HTTP", "    timeout: 30s\n", "    headers: {Connection: close}\n", "6 providers.main.headers.Connection", "or HTTP itself sets it"},
	{"header with the key", "    timeout: 30s\n", "    headers: {authorization: hunter2}\n", "6 providers.main.headers.authorization", "belongs into api_key"},
	{"header for the key", "    timeout: 30s\n", "    key_header: subscription\n    headers: {Subscription: hunter2}\n", "7 providers.main.headers.Subscription", "belongs into api_key"},
	{"header like a key", "    timeout: 30s\n", "    headers: {gateway-auth: Bearer hunter2}\n", "6 providers.main.headers.gateway-auth", "no secret"},
	{"header with a line", "    timeout: 30s\n", "    headers: {a: \"hunter2\\nb: c\"}\n", "6 providers.main.headers.a", "printable ASCII"},
	{"header of nothing", "    timeout: 30s\n", "    headers: {a: \"\"}\n", "6 providers.main.headers.a", "1 to 1024"},
	{"header that is too long", "    timeout: 30s\n", "    headers: {a: " + strings.Repeat("a", 1025) + "}\n", "6 providers.main.headers.a", "1 to 1024"},
	{"header with a number", "    timeout: 30s\n", "    headers: {a: 1}\n", "6 providers.main.headers.a", "in quotes"},
	{"header twice", "    timeout: 30s\n", "    headers: {a: b, A: b}\n", "6 providers.main.headers.A", "do not differ by case"},
	{"header without a name", "    timeout: 30s\n", "    headers: {\"a b\": b}\n", "6 providers.main.headers.\"a b\"", "name of a header"},
	{"extra is a text", "    context: 20000\n    max", "    context: 20000\n    extra: low\n    max", "13 models.small.extra", "mapping of fields"},
	{"no extra", "    context: 20000\n    max", "    context: 20000\n    extra: {}\n    max", "13 models.small.extra", "at least one"},
	{"extra of ours", "    context: 20000\n    max", "    context: 20000\n    extra: {max_tokens: 9}\n    max", "13 models.small.extra.max_tokens", "must be left out: tokenfuse sets it"},
	{"extra of ours, as others write it", "    context: 20000\n    max", "    context: 20000\n    extra: {MaxTokens: 9}\n    max", "13 models.small.extra.MaxTokens", "must be left out"},
	{"extra of ours, in a holder", "    context: 20000\n    max", "    context: 20000\n    extra: {inferenceConfig: {maxTokens: 9}, extra_body: {a: [{n: 3}]}}\n    max", "13 models.small.extra.extra_body.a[0].n | 13 models.small.extra.inferenceConfig.maxTokens", "must be left out"},
	{"extra that costs", "    context: 20000\n    max", "    context: 20000\n    extra: {web_search_options: {}}\n    max", "13 models.small.extra.web_search_options", "must be left out"},
	{"extra without a name", "    context: 20000\n    max", "    context: 20000\n    extra: {\"\": 1}\n    max", "13 models.small.extra.\"\"", "must have a name"},
	{"extra that is null", "    context: 20000\n    max", "    context: 20000\n    extra: {a: {b: null}}\n    max", "13 models.small.extra.a.b", "has no value"},
	{"extra number of YAML's", "    context: 20000\n    max", "    context: 20000\n    extra: {a: [0x10]}\n    max", "13 models.small.extra.a[0]", "as JSON has it"},
	{"extra that is too long", "    context: 20000\n    max", "    context: 20000\n    extra: {a: \"" + strings.Repeat("a", 16<<10) + "\"}\n    max", "13 models.small.extra", "16384 bytes"},
	{"reasoning is a word", "    system: Be brief.\n", "    reasoning: low\n", "25 features.ask.reasoning", "true or false"},
	{"model without context", "    context: 20000\n    max", "    max", "8 models.small.context", "is required"},
	{"model without provider", "    provider: main\n    id: small-1", "    id: small-1", "8 models.small.provider", "is required"},
	{"feature without cap", "    max_output_tokens: 500\n", "", "23 features.ask.max_output_tokens", "is required"},
	{"feature without content", "  ask:\n    model: small\n    system: Be brief.\n    max_output_tokens: 500\n", "  ask:\n", "23 features.ask", "has no value"},
	{"tier without cap", "    max_input_tokens: 10000\n", "", "51 tiers.user.max_input_tokens", "is required"},
	{"tier without limits", "    limits:\n      tokens: {capacity: 50000, per: 1h}\n      spend: {usd: \"2.00\", per: 24h}\n", "", "51 tiers.user.limits", "is required"},
	{"tier with empty limits", "    limits:\n      tokens: {capacity: 50000, per: 1h}\n      spend: {usd: \"2.00\", per: 24h}\n", "    limits: {}\n", "54 tiers.user.limits", "at least one"},
	{"network with empty limits", "      tokens: {capacity: 50000, per: 1h}\n      requests: {capacity: 200, per: 1m}\n      max_in_flight: 32\n", "      max_in_flight: 32\n", "46 tiers.anonymous.network", "at least one"},
	{"network of users", "    max_output_tokens: 2000\n", "    max_output_tokens: 2000\n    network: {requests: {capacity: 1, per: 1s}}\n", "54 tiers.user.network", "anonymous alone"},
	{"challenge of users", "    max_output_tokens: 2000\n", "    max_output_tokens: 2000\n    challenge_at: 0.5\n", "54 tiers.user.challenge_at", "anonymous alone"},
	{"anonymous without fingerprint", "fingerprint:\n  secret: {env: FINGERPRINT_SECRET, ssm: /app/fingerprint}\n", "", "35 fingerprint", "is required"},
	{"auth without tier user", "  user:\n    max_input", "  pro:\n    max_input", "31 features.cv.tiers[0] | 34 tiers.user", "is required where there is auth"},
	{"auth without audience", "  audience: app\n", "", "60 auth.audience", "is required"},
	{"e-mail addresses that nobody verified", "plan_claim: plan\n", "plan_claim: plan\n  email_verified: true\n", "65 auth.email_verified", "must be one of claim, assume"},
	{"plans of an unknown tier", "plan_claim: plan\n", "plan_claim: plan\n  plans: {Pro: [x]}\n", "65 auth.plans.Pro | 65 auth.plans.Pro", "1 to 32 characters"},
	{"plans of a tier that is none", "plan_claim: plan\n", "plan_claim: plan\n  plans: {gold: [x]}\n", "65 auth.plans.gold", "a tier of signed-in users"},
	{"plans of anonymous callers", "plan_claim: plan\n", "plan_claim: plan\n  plans: {anonymous: [x]}\n", "65 auth.plans.anonymous", "a tier of signed-in users"},
	{"plans without values", "plan_claim: plan\n", "plan_claim: plan\n  plans: {user: []}\n", "65 auth.plans.user", "list of 1 to"},
	{"no plans", "plan_claim: plan\n", "plan_claim: plan\n  plans: {}\n", "65 auth.plans", "1 to"},
	{"a plan without a name", "plan_claim: plan\n", "plan_claim: plan\n  plans: {user: [\"\"]}\n", "65 auth.plans.user[0]", "must not be empty"},
	{"a plan that is a number", "plan_claim: plan\n", "plan_claim: plan\n  plans: {user: [7]}\n", "65 auth.plans.user[0]", "in quotes"},
	{"a plan twice", "plan_claim: plan\n", "plan_claim: plan\n  plans: {user: [Pro, Pro]}\n", "65 auth.plans.user[1]", "twice"},
	{"a plan of another tier", "plan_claim: plan\n", "plan_claim: plan\n  plans: {user: [anonymous]}\n", "65 auth.plans.user[0]", "another tier"},
	{"plans without a claim", "plan_claim: plan\n", "plans: {user: [Pro]}\n", "60 auth.plan_claim", "is required where there are plans"},
	{"keys over http", "jwks_url: https://id", "jwks_url: http://id", "63 auth.jwks_url", "must be https"},
	{"origin with a path", "https://app.example.com\"", "https://app.example.com/\"", "66 cors.origins[0]", "such as https://app.example.com"},
	{"origin in capitals", "https://app.example.com\"", "https://App.example.com\"", "66 cors.origins[0]", "lower case"},
	{"origin with the usual port", "https://app.example.com\"", "https://app.example.com:443\"", "66 cors.origins[0]", "usual"},
	{"origin of any kind", "https://app.example.com\"", "*\"", "66 cors.origins[0]", "origin"},
	{"star for a domain", "https://app.example.com\"", "https://*.com\"", "66 cors.origins[0]", "two names follow"},
	{"two stars", "https://app.example.com\"", "https://*.*.example.com\"", "66 cors.origins[0]", "One * may"},
	{"origin null", "\"https://app.example.com\"", "null", "66 cors.origins[0]", "has no value"},
	{"origin without scheme", "https://app.example.com\"", "app.example.com\"", "66 cors.origins[0]", "origin"},
	{"origin twice", "http://localhost:5173", "https://app.example.com", "66 cors.origins[1]", "twice"},
	{"unknown challenge", "kind: altcha", "kind: recapcha", "68 challenge.kind", "recaptcha"},
	{"challenge without site_key", "kind: altcha", "kind: turnstile", "67 challenge.site_key", "is required for kind turnstile"},
	{"altcha with site_key", "kind: altcha", "kind: altcha\n  site_key: abc", "69 challenge.site_key", "left out"},
	{"challenge hostname with scheme", "kind: altcha", "kind: hcaptcha\n  site_key: abc\n  hostname: https://app.example.com", "70 challenge.hostname", "host name alone"},
	{"no origin secrets", "origin_secrets: [{ssm: /app/origin-1}, {secret: app/origin-2}]", "origin_secrets: []", "73 cloudfront.origin_secrets", "list of 1 to"},
	{"something else than an ARN", "arn:aws:iam::123456789012:role/support", "support", "77 admin.allow_arns[0]", "arn:aws:iam"},
	{"admin for nobody", "  allow_arns: [\"arn:aws:iam::123456789012:role/support\"]\n  keys: {bob: [{env: KEY_3}], ann: [{env: KEY_1}, {ssm: /app/key-2}]}\n", "  {}\n", "76 admin", "at least one of allow_arns and keys"},
	{"an administrator without a key", "bob: [{env: KEY_3}]", "bob: []", "78 admin.keys.bob", "list of 1 to"},
	{"an administrator's key itself", "bob: [{env: KEY_3}]", "bob: [hunter2]", "78 admin.keys.bob[0]", "{env: NAME}"},
	{"the address of a webhook itself", "url: {env: WEBHOOK_URL}", "url: https://hooks.example.com/hunter2", "85 alarm.webhook.url", "{env: NAME}"},
	{"a webhook without an address", "{url: {env: WEBHOOK_URL}, secret: {secret: app/webhook}}", "{secret: {secret: app/webhook}}", "85 alarm.webhook.url", "is required"},
	// Backends; see TestBackends for what is right.
	{"backend without proof", toPools, backend(`tiers: [user], pool: web`), "58 backends.web", "at least one of secrets and token"},
	{"backend without pool", toPools, backend(`secrets: [{env: B}]`), "58 backends.web.pool", "is required"},
	{"backend with the secret itself", toPools, backend(`secrets: [hunter2], pool: web`), "58 backends.web.secrets[0]", "{env: NAME}"},
	{"backend with no secrets", toPools, backend(`secrets: [], pool: web`), "58 backends.web.secrets", "list of 1 to"},
	{"backend with a claim of no value", toPools, backend(`token: {claim: azp}, pool: web`), "58 backends.web.token.values", "is required"},
	{"backend of an unknown tier", toPools, backend(`secrets: [{env: B}], tiers: [gold], pool: web`), "58 backends.web.tiers[0]", "unknown tier"},
	{"backend that vouches for anonymous", toPools, backend(`secrets: [{env: B}], tiers: [anonymous], pool: web`), "58 backends.web.tiers[0]", "another tier"},
	{"backend of an unknown pool", toPools, backend(`secrets: [{env: B}], pool: well`), "58 backends.web.pool", "unknown pool"},
	{"backend of all's pool", toPools, backend(`secrets: [{env: B}], pool: all`), "58 backends.web.pool", "must be another pool"},
	{"backend of a tier's pool", toPools, backend(`secrets: [{env: B}], pool: anonymous`), "58 backends.web.pool", "tiers.anonymous draws on it"},
	{"backends of one pool", toPools, backend("secrets: [{env: B}], pool: web}\n  app: {secrets: [{env: C}], pool: web"), "58 backends.web.pool", "backends.app draws on it"},
	{"call above a backend's burst", toPools, backend(`secrets: [{env: B}], tiers: [user], pool: small`), "61 pools.small.usd", "a call of tier user"},
	{"unknown fuse", "fuse: challenge", "fuse: closed", "84 alarm.fuse", "none, challenge, anonymous_off, open"},

	// Tools, images, efforts and embeddings.
	{"an effort of no word", toAsk, toAsk + "    reasoning_effort: [low, lots]\n", "26 features.ask.reasoning_effort[1]", "one of none, minimal, low"},
	{"an effort twice", toAsk, toAsk + "    reasoning_effort: [low, low]\n", "26 features.ask.reasoning_effort[1]", "twice"},
	{"no effort", toAsk, toAsk + "    reasoning_effort: []\n", "26 features.ask.reasoning_effort", "list of 1 to"},
	{"efforts of a model that has fewer", stretch("    kind: openai", toAsk), edit(stretch("    kind: openai", toAsk), "kind: openai\n", "kind: anthropic\n", "    max_tokens_field: max_tokens\n", "", toAsk, toAsk+"    reasoning_effort: [low, none]\n"),
		"25 features.ask.reasoning_effort | 32 features.cv.allow", "model small of kind anthropic can be asked for: low, medium"},
	{"efforts of a model that has none", stretch("    kind: openai", toAsk), edit(stretch("    kind: openai", toAsk), "kind: openai\n", "kind: bedrock\n", "    api_key: {env: API_KEY}\n", "", "    max_tokens_field: max_tokens\n", "", toAsk, toAsk+"    reasoning_effort: [low]\n"),
		"24 features.ask.reasoning_effort | 31 features.cv.allow", "of kind bedrock can be asked for: nothing"},
	{"a tool that is a name", toAsk, toAsk + "    tools: [weather]\n", "26 features.ask.tools[0]", "mapping of keys"},
	{"no tool", toAsk, toAsk + "    tools: []\n", "26 features.ask.tools", "list of 1 to"},
	{"a tool without a name", toAsk, toAsk + "    tools: [{description: a}]\n", "26 features.ask.tools[0].name", "is required"},
	{"a tool with a dot", toAsk, toAsk + "    tools: [{name: a.b}]\n", "26 features.ask.tools[0].name", "1 to 64 characters"},
	{"a tool with a long name", toAsk, toAsk + "    tools: [{name: " + strings.Repeat("a", 65) + "}]\n", "26 features.ask.tools[0].name", "1 to 64 characters"},
	{"a tool twice", toAsk, toAsk + "    tools: [{name: a}, {name: a, strict: true}]\n", "26 features.ask.tools[1]", "name of another tool: a"},
	{"a tool of another type", toAsk, toAsk + "    tools: [{type: web_search, name: a}]\n", "26 features.ask.tools[0].type", "description, name, parameters, strict"},
	{"a tool that is strict at times", toAsk, toAsk + "    tools: [{name: a, strict: sometimes}]\n", "26 features.ask.tools[0].strict", "true or false"},
	{"a tool with a long description", toAsk, toAsk + "    tools: [{name: a, description: " + strings.Repeat("a", 8<<10+1) + "}]\n    tiers: [user]\n", "26 features.ask.tools[0].description", "8192 bytes"},
	{"parameters that are text", toAsk, toAsk + "    tools: [{name: a, parameters: \"{}\"}]\n", "26 features.ask.tools[0].parameters", "JSON Schema, written as a mapping"},
	{"parameters that are nothing", toAsk, toAsk + "    tools: [{name: a, parameters: }]\n", "26 features.ask.tools[0].parameters", "has no value"},
	{"parameters with nothing in them", toAsk, toAsk + "    tools: [{name: a, parameters: {type: , enum: [null]}}]\n", "26 features.ask.tools[0].parameters.type", "has no value"},
	{"parameters with an alias", toAsk, toAsk + "    tools: [{name: a, parameters: {a: &a {}, b: *a}}]\n", "26 features.ask.tools[0].parameters.a | 26 features.ask.tools[0].parameters.b", "aliases"},
	{"parameters that are no object", toAsk, toAsk + "    tools: [{name: a, parameters: {type: [object, array]}}]\n", "26 features.ask.tools[0].parameters", "of type object"},
	{"parameters that are too deep", toAsk, toAsk + "    tools: [{name: a, parameters: " + strings.Repeat("{a: ", 22) + "{}" + strings.Repeat("}", 22) + "}]\n", "26 features.ask.tools[0].parameters", "at most 22"},
	{"parameters that are too long", toAsk, toAsk + "    tools: [{name: a, parameters: {a: " + strings.Repeat("a", 32<<10) + "}}]\n    tiers: [user]\n", "26 features.ask.tools[0].parameters", "at most 32768 bytes of JSON"},
	{"tools that are too long together", toAsk, toAsk + "    tools: [" + tools(5, strings.Repeat("a", 30<<10)) + "]\n    tiers: [user]\n", "26 features.ask.tools | 54 tiers.user.max_input_tokens", "131072 bytes of JSON in all"},
	{"max_images where there are none", toAsk, toAsk + "    max_images: 2\n", "26 features.ask.max_images", "where allow has no images"},
	{"no images, said twice", toAsk, toAsk + "    allow: [images]\n    max_images: 0\n", "26 features.ask.allow | 27 features.ask.max_images", "from 1 to 100"},
	{"images of a model that has no price for them", "allow: [system, response_format]", "allow: [images]", "32 features.cv.allow", "model small has no image_tokens"},
	{"images of a fallback that has no price for them", stretch(toPrices, "[system, response_format]"), edit(stretch(toPrices, "[system, response_format]"), toPrices, "    image_tokens: {low: 85, high: 1445}\n"+toPrices, "[system, ", "[images, "),
		"33 features.cv.allow", "model large has no image_tokens"},
	{"addresses of images that nobody fetches", stretch("    kind: openai", toAsk), edit(stretch("    kind: openai", toAsk), "kind: openai\n", "kind: bedrock\n", "    api_key: {env: API_KEY}\n", "", "    max_tokens_field: max_tokens\n", "    image_tokens: {low: 1, high: 2}\n", toAsk, toAsk+"    allow: [image_urls]\n"),
		"25 features.ask.allow | 32 features.cv.allow", "kind bedrock, which fetches no images"},
	{"image_tokens of one detail", toPrices, "    image_tokens: {high: 1445}\n" + toPrices, "14 models.small.image_tokens", "low and high"},
	{"image_tokens of figures and a rule", toPrices, "    image_tokens: {low: 85, high: 1445, rule: gpt-4o}\n" + toPrices, "14 models.small.image_tokens", "or the rule"},
	{"image_tokens of nothing", toPrices, "    image_tokens: {}\n" + toPrices, "14 models.small.image_tokens", "low and high"},
	{"image_tokens of an unknown rule", toPrices, "    image_tokens: {rule: mine}\n" + toPrices, "14 models.small.image_tokens.rule", "gpt-4o"},
	{"image_tokens that are free", toPrices, "    image_tokens: {low: 0, high: 5}\n" + toPrices, "14 models.small.image_tokens.low", "from 1 to"},
	{"image_tokens that fall", toPrices, "    image_tokens: {low: 6, high: 5}\n" + toPrices, "14 models.small.image_tokens.low", "at most high"},
	{"image_tokens that are a number", toPrices, "    image_tokens: 1445\n" + toPrices, "14 models.small.image_tokens", "mapping of keys"},
	{"more images than there can be", "    max_input_tokens: 10000\n", "    max_input_tokens: 10000\n    max_images: 101\n", "53 tiers.user.max_images", "from 0 to 100"},
	{"fewer images than none", "    max_input_tokens: 10000\n", "    max_input_tokens: 10000\n    max_images: -1\n", "53 tiers.user.max_images", "from 0 to 100"},
	{"more tools than there can be", "    max_input_tokens: 10000\n", "    max_input_tokens: 10000\n    max_tools: 129\n", "53 tiers.user.max_tools", "from 0 to 128"},
	{"unknown kind of model", toPrices, "    kind: completion\n" + toPrices, "14 models.small.kind", "one of chat, embedding"},
	{"embeddings with a price of output", toFeatures, embedding(`price_per_mtok: {input: 1, output: 2}`, ``), "22 models.vectors.price_per_mtok.output", "left out for kind embedding"},
	{"embeddings with prices of a cache", toFeatures, embedding(`price_per_mtok: {input: 1, cached_input: 1, cache_write: 1}`, ``), "22 models.vectors.price_per_mtok.cache_write | 22 models.vectors.price_per_mtok.cached_input", "left out for kind embedding"},
	{"embeddings without a price", toFeatures, embedding(`price_per_mtok: {}`, ``), "22 models.vectors.price_per_mtok.input", "is required"},
	{"embeddings in a stream", toFeatures, embedding(`stream: true, price_per_mtok: {input: 1}`, ``), "22 models.vectors.stream", "left out for kind embedding"},
	{"embeddings of images", toFeatures, embedding(`image_tokens: {rule: gpt-4o}, max_tokens_field: max_tokens, price_per_mtok: {input: 1}`, ``), "22 models.vectors.image_tokens | 22 models.vectors.max_tokens_field", "left out for kind embedding"},
	{"embeddings with extra of ours", toFeatures, embedding(`extra: {dimensions: 9}, price_per_mtok: {input: 1}`, ``), "22 models.vectors.extra.dimensions", "must be left out"},
	{"embeddings of conversations", toFeatures, embedding(`price_per_mtok: {input: 1}`, `, system: a, max_output_tokens: 9, allow: [images], max_images: 1, tools: [{name: a}], reasoning_effort: [low], reasoning: true, fallback: small`),
		"24 features.search.allow | 24 features.search.fallback | 24 features.search.max_images | 24 features.search.max_output_tokens | 24 features.search.reasoning | 24 features.search.reasoning_effort | 24 features.search.system | 24 features.search.tools", "must be left out where the model is of kind embedding, as vectors is"},
	{"more texts than there can be", toFeatures, embedding(`price_per_mtok: {input: 1}`, `, max_inputs: 2049`), "24 features.search.max_inputs", "from 1 to 2048"},
	{"texts of a conversation", toAsk, toAsk + "    max_inputs: 9\n", "26 features.ask.max_inputs", "for models of kind embedding"},
	{"fallback to vectors", stretch(toFeatures, "fallback: large"), edit(stretch(toFeatures, "fallback: large"), toFeatures, embedding(`price_per_mtok: {input: 1}`, ``), "fallback: large", "fallback: vectors"), "31 features.cv.fallback", "must be a model of kind chat"},
	{"embeddings of a provider that has none", stretch("    kind: openai", toFeatures), edit(stretch("    kind: openai", toFeatures), "kind: openai\n", "kind: anthropic\n", "    max_tokens_field: max_tokens\n", "", toFeatures, embedding(`price_per_mtok: {input: 1}`, ``)),
		"21 models.vectors.kind | 33 features.cv.allow", "only providers of kind openai"},

	// Secrets, none of which may be repeated: see also TestSecretsAreNotRepeated.
	{"secret as text", "secret: {env: CHALLENGE_SECRET}", "secret: hunter2", "69 challenge.secret", "{env: NAME}"},
	{"secret as a key", "secret: {env: CHALLENGE_SECRET}", "secret: {hunter2}", "69 challenge.secret", "{env: NAME}"},
	{"schemas of a model that has none", "kind: openai", "kind: anthropic", "13 models.small.max_tokens_field | 32 features.cv.allow", "response_format"},
	{"secret kept twice", "secret: {env: CHALLENGE_SECRET}", "secret: {ssm: A, secret: B}", "69 challenge.secret", "env with one of"},
	{"secret of one kind twice", "secret: {env: CHALLENGE_SECRET}", "secret: {env: A, ssm: B, env: C}", "69 challenge.secret", "env with one of"},
	{"secret in place of the second name", "secret: {env: CHALLENGE_SECRET}", "secret: {env: A, ssm: hunter 2}", "69 challenge.secret.ssm", "SSM parameter"},
	{"CloudFront at no address", "url: https://ai.example.com/", "url: ai.example.com", "74 cloudfront.url", "http or https"},
	{"CloudFront required a little", "required: true", "required: 1", "75 cloudfront.required", "true or false"},
	{"secret of an unknown kind", "secret: {env: CHALLENGE_SECRET}", "secret: {value: hunter2}", "69 challenge.secret", "{env: NAME}"},
	{"secret of no kind", "secret: {env: CHALLENGE_SECRET}", "secret: {}", "69 challenge.secret", "{env: NAME}"},
	{"secret of null", "secret: {env: CHALLENGE_SECRET}", "secret:", "69 challenge.secret", "{env: NAME}"},
	{"secret in place of a variable", "secret: {env: CHALLENGE_SECRET}", "secret: {env: hunter-2}", "69 challenge.secret.env", "environment variable"},
	{"secret in place of a parameter", "{ssm: /app/origin-1}", "{ssm: hunter 2}", "73 cloudfront.origin_secrets[0].ssm", "SSM parameter"},
	{"missing secret", "  secret: {env: CHALLENGE_SECRET}\n", "", "67 challenge.secret", "is required"},

	// The whole: what one call may take must fit every bound.
	{"call above the token limit", "tokens: {capacity: 5000,", "tokens: {capacity: 2399,", "42 tiers.anonymous.limits.tokens.capacity", "at least 2400"},
	{"call above the network's token limit", "tokens: {capacity: 50000, per: 1h}\n      requests: {capacity: 200", "tokens: {capacity: 2399, per: 1h}\n      requests: {capacity: 200", "47 tiers.anonymous.network.tokens.capacity", "at least 2400"},
	// cv falls back to the large model at its long rates: 10,000 x 8 + 1,000 x 24 dollars per million.
	{"call above the spend limit", `spend: {usd: "2.00"`, `spend: {usd: "0.103999"`, "56 tiers.user.limits.spend.usd", "at least 0.104:"},
	{"call above a pool's burst", `all: {usd: "20.00"`, `all: {usd: "0.415999"`, "59 pools.all.usd", "at least 0.416:"},
	{"call above its tier's pool's burst", `anonymous: {usd: "2.00"`, `anonymous: {usd: "0.005759"`, "58 pools.anonymous.usd", "at least 0.00576:"},
	{"call above the context", "context: 20000\n    price", "context: 10999\n    price", "20 models.large.context", "at least 11000"},
	{"system prompt above the input cap", "system: Be brief.", "system: " + strings.Repeat("brief ", 2000), "37 tiers.anonymous.max_input_tokens", "feature ask"},
	{"tools above the input cap", toAsk, toAsk + "    tools: [" + tools(1, strings.Repeat("brief ", 2000)) + "]\n", "38 tiers.anonymous.max_input_tokens", "its tools"},
	{"images above the input cap", stretch(toPrices, toAsk), edit(stretch(toPrices, toAsk), toPrices, "    image_tokens: {low: 85, high: 2500}\n"+toPrices, toAsk, toAsk+"    allow: [images]\n"), "54 tiers.user.max_input_tokens", "its images (max_images: 4)"},
	{"framing above the input cap", "max_input_tokens: 2000", "max_input_tokens: 8", "37 tiers.anonymous.max_input_tokens", "feature ask"},
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	check.That(t, len(mistakes) >= 70, "only %d cases", len(mistakes))
	for _, test := range mistakes {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := strings.Count(good, test.old)
			check.Must(t, n == 1, "%q stands %d times in the good file", test.old, n)
			places, text := problemsOf(t, strings.Replace(good, test.old, test.new, 1))
			got := strings.Join(places, " | ")
			check.That(t, got == test.want, "got  %s\nwant %s\n%s", got, test.want, text)
			check.That(t, strings.Contains(text, test.says), "does not say %q:\n%s", test.says, text)
		})
	}
}

func manyPools(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  p%d: {usd: 1, per: 1h}\n", i)
	}
	return b.String()
}

// toLarge is the part of the good file from the provider's address to the prices of the
// second model.
var toLarge = good[strings.Index(good, "    base_url:"):strings.Index(good, "    price_per_mtok: {")]

// toPools is the beginning of the pools in the good file, and backend the same with a
// backend before it and two pools more, the smaller of which bears anonymous calls alone.
const toPools = "pools:\n"

func backend(web string) string {
	return "backends:\n  web: {" + web + "}\npools:\n  web: {usd: 4, per: 1h}\n  small: {usd: \"0.40\", per: 1h}\n"
}

// Where tools, images and embeddings are put into the good file.
const (
	toAsk      = "    system: Be brief.\n"
	toPrices   = "    price_per_mtok:\n"
	toFeatures = "features:\n"
)

// stretch is the part of the good file from one text to another, both included.
func stretch(from, to string) string {
	begin := strings.Index(good, from)
	return good[begin : begin+strings.Index(good[begin:], to)+len(to)]
}

// edit replaces texts, each of which stands once.
func edit(s string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(s, pairs[i]) != 1 {
			panic(pairs[i] + " does not stand there once")
		}
		s = strings.Replace(s, pairs[i], pairs[i+1], 1)
	}
	return s
}

// tools are n of them, with a description of each.
func tools(n int, description string) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("{name: t%d, parameters: {description: %q}}", i, description))
	}
	return strings.Join(list, ", ")
}

// embedding is the beginning of the features in the good file, with a model before it and
// a feature that asks it.
func embedding(model, feature string) string {
	return "  vectors: {kind: embedding, provider: main, id: v, context: 8000, " + model + "}\nfeatures:\n  search: {model: vectors" + feature + "}\n"
}

// accepted holds what looks unusual and is right: what is replaced in the good file,
// and by what.
var accepted = map[string][2]string{
	"comments and blank lines": {"providers:\n  main", "# x\n\nproviders: # y\n  main"},
	"document start":           {"providers:\n  main", "---\nproviders:\n  main"},
	"byte order mark":          {"providers:\n  main", "\ufeffproviders:\n  main"},
	"CRLF":                     {"kind: openai\n", "kind: openai\r\n"},
	"price as a number":        {`input: "0.40"`, "input: 0.40"},
	"price of zero, written":   {`input: "0.40"`, "input: 0"},
	"days":                     {"per: 24h}\ntiers", "per: 366d}\ntiers"},
	"days and more":            {"per: 24h}\ntiers", "per: 1d12h30m}\ntiers"},
	"fractions of hours":       {"per: 24h}\ntiers", "per: 1.5h}\ntiers"},
	"no system prompt":         {"    system: Be brief.\n", ""},
	"system prompt of many bytes and fewer tokens": {"system: Be brief.", "system: " + strings.Repeat("brief ", 340)},
	"empty system prompt":                          {"system: Be brief.", `system: ""`},
	"challenge_at above 1":                         {"challenge_at: 0.5", "challenge_at: 2"},
	"no pools, but a tier names it":                {"pools:\n  anonymous: {usd: \"2.00\", per: 1h}\n  all: {usd: \"20.00\", per: 1h}\n", ""},
	"provider without key":                         {"    api_key: {env: API_KEY}\n", ""},
	"provider on this machine": {toLarge, strings.Replace(toLarge, "https://api.openai.com", "http://127.0.0.1:8080", 1) +
		"    max_tokens_field: max_tokens\n"},
	"provider with all settings": {"    timeout: 30s\n", "    key_header: api-key\n    stream_options: false\n    headers: {HTTP-Referer: \"https://app.example.com\", x-title: My app}\n"},
	"base_url with a query":      {"openai.com/v1", "openai.com/v1/?api-version=2024-10-21&x=/y"},
	"extra fields":               {"    context: 20000\n    max", "    context: 20000\n    extra: {reasoning_effort: low, reasoning: {max_tokens: 9, exclude: true}, a: [1, -2.5e3, \"010\"]}\n    max"},
	"efforts and tools":          {toAsk, toAsk + "    allow: [tools]\n    reasoning_effort: [high, low]\n    tools: [{name: a_B-9, strict: true, description: \"<&>\", parameters: {type: object, properties: {}, enum: [null, 1.5e3]}}]\n"},
	"as many images as just fit": {stretch(toPrices, "max_input_tokens: 2000"), edit(stretch(toPrices, "max_input_tokens: 2000"), toPrices, "    image_tokens: {low: 85, high: 1982}\n"+toPrices, toAsk, toAsk+"    allow: [images]\n    max_images: 1\n",
		"    max_input_tokens: 2000", "    max_images: 4\n    max_input_tokens: 2000")},
	"images for nobody, and by a rule": {stretch(toPrices, "max_input_tokens: 2000"), edit(stretch(toPrices, "max_input_tokens: 2000"), toPrices, "    image_tokens: {rule: gpt-4o}\n"+toPrices, toAsk, toAsk+"    allow: [image_urls]\n    max_images: 2\n",
		"    max_input_tokens: 2000", "    max_images: 0\n    max_tools: 0\n    max_input_tokens: 2000")},
	"embeddings":                          {toFeatures, embedding(`tokenizer: cl100k_base, extra: {input_type: query}, price_per_mtok: {input: "0.02"}`, `, max_inputs: 2048, quota: {capacity: 1, per: 1h}, tiers: [user]`)},
	"reasoning":                           {"    system: Be brief.\n", "    reasoning: true\n"},
	"plans by other names":                {"plan_claim: plan\n", "plan_claim: plan\n  plans: {user: [Pro, Pro Plan, user, 8f3c5a1e-0000-4000-8000-000000000000]}\n"},
	"key server on this machine":          {"jwks_url: https://id.example.com/jwks.json", "jwks_url: http://localhost:8787/jwks.json"},
	"issuer without scheme":               {"issuer: https://id.example.com/", "issuer: accounts.example.com"},
	"IPv6 origin":                         {"http://localhost:5173", "http://[::1]:5173"},
	"secret by ARN":                       {"{secret: app/origin-2}", "{secret: \"arn:aws:secretsmanager:eu-west-1:123456789012:secret:app-x\"}"},
	"o without a digit":                   {"  ask:\n", "  overview:\n"},
	"alarm without numbers":               {good[strings.Index(good, "  threshold_usd"):], "  fuse: none\n"},
	"call that just fits":                 {"tokens: {capacity: 5000,", "tokens: {capacity: 2400,"},
	"price that just fits":                {`spend: {usd: "2.00"`, `spend: {usd: "0.104"`},
	"burst that just fits":                {`all: {usd: "20.00"`, `all: {usd: "0.416"`},
	"context that just fits":              {"context: 20000\n    price", "context: 11000\n    price"},
	"backend with secrets":                {toPools, backend(`secrets: [{ssm: /app/web-a}, {secret: app/web-b}], tiers: [user], pool: web`)},
	"backend with a token":                {toPools, backend(`token: {claim: azp, values: [web, web-2]}, pool: web`)},
	"backend with a bound that just fits": {toPools, strings.Replace(backend(`secrets: [{env: B}], tiers: [user], pool: small`), "0.40", "0.416", 1)},
	"origin of one label":                 {"http://localhost:5173", "https://*-team.vercel.app"},
	"origin of an app":                    {"http://localhost:5173", "capacitor://localhost"},
	"origins of extensions":               {"http://localhost:5173", "moz-extension://*"},
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	for name, change := range accepted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if n := strings.Count(good, change[0]); n != 1 {
				t.Fatalf("%q stands %d times in the good file", change[0], n)
			}
			if _, text := problemsOf(t, strings.Replace(good, change[0], change[1], 1)); text != "" {
				t.Error(text)
			}
		})
	}
}

// TestAllMistakes: none hides another, and they come in the order of the file.
func TestAllMistakes(t *testing.T) {
	t.Parallel()
	file := good
	for _, change := range [][2]string{
		{"    kind: openai", "    kind: azure\n    colour: red"},
		{`output: "1.60"`, `output: cheap`},
		{"per: 24h}\ntiers", "per: daily}\ntiers"},
		{"  cv:\n", "  gpt-5:\n"},
		{"max_messages: 16", "max_messages: many"},
		{"tokens: {capacity: 5000,", "tokens: {capacity: 100,"},
		{"pool: anonymous", "pool: nobody"},
		{`all: {usd: "20.00"`, `all: {usd: "0.01"`},
		{"  audience: app\n", ""},
		{"secret: {env: FINGERPRINT_SECRET, ssm: /app/fingerprint}", "secret: hunter2"},
		{"fuse: challenge", "fuse: blown"},
	} {
		check.Must(t, strings.Count(file, change[0]) == 1, "%q is not unique", change[0])
		file = strings.Replace(file, change[0], change[1], 1)
	}
	places, text := problemsOf(t, file)
	want := []string{
		"3 providers.main.kind",
		"4 providers.main.colour",
		"17 models.small.price_per_mtok.output",
		"28 features.gpt-5",
		"34 features.gpt-5.quota.per",
		"39 tiers.anonymous.max_messages",
		"43 tiers.anonymous.limits.tokens.capacity",
		"46 tiers.anonymous.pool",
		"60 pools.all.usd",
		"61 auth.audience",
		"71 fingerprint.secret",
		"84 alarm.fuse",
	}
	if !slices.Equal(places, want) {
		t.Errorf("got\n%s\nwant\n%s", text, strings.Join(want, "\n"))
	}
}

// TestSecretsAreNotRepeated puts one where references, and other things, belong.
func TestSecretsAreNotRepeated(t *testing.T) {
	t.Parallel()
	const secret = "sk-Hunter2"
	for _, form := range []string{
		secret, `"` + secret + `"`, "{" + secret + "}", "{" + secret + ": x}", "{value: " + secret + "}", "{env: " + secret + "}",
		`{ssm: "` + secret + `!"}`, `{secret: "` + secret + ` "}`, "[" + secret + "]", "*" + secret, "&" + secret + " x", "!" + secret + " x",
		"{env: *" + secret + "}", "{env: A, " + secret + ": B}", "{env: A, env: " + secret + "}", "{? [" + secret + "] : x}", "{<<: {env: " + secret + "}}",
		secret + ": x", "'" + secret, "{env: " + secret, "| \n  " + secret,
	} {
		for _, place := range []string{"api_key: {env: API_KEY}", "secret: {env: CHALLENGE_SECRET}"} {
			key, _, _ := strings.Cut(place, " ")
			places, text := problemsOf(t, strings.Replace(good, place, key+" "+form, 1))
			check.That(t, places != nil, "%s %s was accepted", key, form)
			check.That(t, !strings.Contains(strings.ToLower(text), "hunter2"), "%s %s gives it away: %s", key, form, text)
		}
	}
}

func TestProblemString(t *testing.T) {
	t.Parallel()
	ps := Problems{{12, "tiers.user.limits", "is required"}, {13, "", "is not valid YAML"}}
	if got, want := ps.Error(), "line 12: tiers.user.limits: is required\nline 13: is not valid YAML"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("providers: {main: {kind: openai, api_key: {env: {}}}}\nmodels: [1]\nfeatures: ~\ntiers: {user: {limits: {spend: {usd: .inf}}}}"))
	f.Add([]byte("? {a: 1}\n: !!map &x {<<: *x}\n"))
	f.Add([]byte("%TAG ! tag:x,2000:\n---\n!a b: \"\\x00\"\n...\n--- c\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err == nil {
			p.Notes()
			p.LongestPeriod()
			return
		}
		problems, ok := err.(Problems)
		check.Must(t, ok && len(problems) != 0 && p == nil, "got %v, %T", p, err)
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 2 +
			strings.Count(string(data), "\u0085") + strings.Count(string(data), "\u2028") + strings.Count(string(data), "\u2029")
		for _, problem := range problems {
			check.Must(t, problem.Line >= 1 && problem.Message != "", "%+v", problem)
			check.Must(t, problem.Line <= lines || len(data) <= 1 || data[0] == 0xfe || data[0] == 0xff, "line of %+v is beyond %d", problem, lines)
		}
	})
}
