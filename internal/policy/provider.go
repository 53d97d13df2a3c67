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

// bedrockHost matches Bedrock's endpoints: of its own API and of the one that speaks
// OpenAI's, public and inside a VPC.
var bedrockHost = lazily(`(^|\.)bedrock(-[a-z-]+)?\.[a-z0-9-]+\.(vpce\.)?(amazonaws\.com(\.cn)?|api\.aws)$`)

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
		return !bedrockHost().MatchString(host)
	}
}

// tokensPerSecond is how fast a model must be expected to write at least.
const tokensPerSecond = 40

// inTime reports whether so many tokens of output can be expected within the timeout.
func (p *Provider) inTime(tokens int64) bool {
	return tokens*1000 <= tokensPerSecond*p.Timeout.Milliseconds()
}
