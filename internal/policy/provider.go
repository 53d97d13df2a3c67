package policy

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
)

// Hosts of sellers whose ways are known.
const (
	hostOpenAI    = "api.openai.com"
	hostAnthropic = "api.anthropic.com"
)

// host is where calls go: the host of the base URL, or the kind's own, which is "" for
// Bedrock. It is in lower case and without a port.
func (p *Provider) host() string {
	own := ""
	if p.Kind == kind.Anthropic {
		own = hostAnthropic
	}
	u, err := url.Parse(p.BaseURL)
	if err != nil {
		return own
	}
	return cmp.Or(strings.ToLower(u.Hostname()), own)
}

// azureHost matches Azure's endpoints of models.
var azureHost = rarely(".azure.", `\.(openai|cognitiveservices|services\.ai)\.azure\.(com|us|cn)$`)

// bedrockHost matches Bedrock's endpoints: of its own API and of the one that speaks
// OpenAI's, public and inside a VPC.
var bedrockHost = rarely("bedrock", `(^|\.)bedrock(-[a-z-]+)?\.[a-z0-9-]+\.(vpce\.)?(amazonaws\.com(\.cn)?|api\.aws)$`)

// keyParameters are those of a query that bear keys.
var keyParameters = []string{"key", "api_key", "token", "access_token", "subscription_key", "sig", "signature", "code", "secret", "password"}

// baseURL reads the base URL of a provider, without a slash at the end of its path. It
// may have a query, which goes with every call.
func (v value) baseURL(k kind.Kind) string {
	u := v.address("#", `^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\s]+([/?][^#\s]*)?$`, "user and fragment")
	if u == nil {
		return ""
	}
	query, err := url.ParseQuery(u.RawQuery)
	u.Path, u.RawPath, u.ForceQuery = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/"), false
	ends := []string{"/chat/completions", "/embeddings"}
	if k == kind.Anthropic {
		ends = []string{"/v1/messages"}
	}
	switch {
	case err != nil:
		v.report("has a query that is none")
	case k == kind.Bedrock && u.RawQuery != "":
		v.report("must have no query for kind %s", k)
	}
	for _, end := range ends {
		if strings.HasSuffix(u.Path, end) {
			v.report("must end before %s, which is added to it", end)
		}
	}
	for name := range query {
		if isOneOf(name, keyParameters) {
			v.report("must have no key in its query: it belongs into api_key, and the name of its header into key_header")
		}
	}
	return u.String()
}

// MayBillErrors reports whether a call that p answers with 400, 422, 500 or 502 may be
// charged. If the configuration does not say so, it is taken that OpenAI, Anthropic and
// Bedrock themselves do not charge for such a call, and that everybody else may.
func (p *Provider) MayBillErrors() bool {
	if p.BillsErrors != nil {
		return *p.BillsErrors
	}
	switch host := p.host(); host {
	case hostOpenAI, hostAnthropic:
		return false
	case "":
		return p.Kind != kind.Bedrock
	default:
		return !bedrockHost.matches(host)
	}
}

// notes are what is allowed but unwise, each beginning with a key.
func (p *Provider) notes() (notes []string) {
	if p.NoStreamOptions && p.Stream {
		notes = append(notes, "stream_options is false: a stream that tells of no usage by itself is charged at its worst case. If the server tells it in answers of one piece, stream: false is exact.")
	}
	u, err := url.Parse(p.BaseURL)
	if err != nil {
		return notes
	}
	if strings.Contains(u.Path, "/openai/deployments/") && !u.Query().Has("api-version") {
		notes = append(notes, "base_url has no ?api-version=…, without which Azure answers calls to a deployment with 404.")
	}
	if p.Kind == kind.Anthropic && strings.HasSuffix(u.Path, "/v1") {
		notes = append(notes, "base_url ends in /v1, to which /v1/messages is added: leave /v1 out.")
	}
	return notes
}

// tokensPerSecond is how fast a model must be expected to write at least.
const tokensPerSecond = 40

// inTime reports whether so many tokens of output can be expected within the timeout.
func (p *Provider) inTime(tokens int64) bool {
	return tokens*1000 <= tokensPerSecond*p.Timeout.Milliseconds()
}
