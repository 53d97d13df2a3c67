package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Pools at the ends of the range that check accepts can be made, and bear the calls
// that check admits.
func TestPoolsAtTheEnds(t *testing.T) {
	t.Parallel()
	const file = `
providers: {p: {kind: openai, base_url: "https://p"}}
models: {m: {provider: p, id: m, context: 10000, max_tokens_field: max_tokens, price_per_mtok: {input: "0.000001", output: "0.000001"}}}
features: {ask: {model: m, max_output_tokens: 100}}
tiers: {user: {max_input_tokens: 200, max_output_tokens: 100, limits: {tokens: {capacity: 1000, per: 1m}}}}
auth: {issuer: "https://i", audience: a, jwks_url: "https://i/jwks"}
pools: {all: {usd: %q, per: %s}}
`
	for _, usd := range []string{"0.000001", "9007.199254", "9007.199255", "1000000"} {
		for _, per := range []string{"1s", "1h", "366d"} {
			p, err := Parse([]byte(strings.TrimSpace(fmt.Sprintf(file, usd, per))))
			if err != nil {
				t.Errorf("$%s in %s: %v", usd, per, err)
				continue
			}
			b, err := bucket.New(&dynamodb.Client{}, bucket.Options{Table: "t", LongestPeriod: p.LongestPeriod() + time.Minute})
			check.OK(t, err)
			all := p.Pools[PoolAll]
			pool, err := b.NewPool("pool#all", int64(all.Ceiling), all.Period, bucket.PoolOptions{})
			if err != nil {
				t.Errorf("$%s in %s: %v", usd, per, err)
				continue
			}
			if pool.Burst() != int64(all.Burst()) || all.Within(all.Period) != all.Ceiling {
				t.Errorf("$%s in %s: burst %d and %s, %s in a period", usd, per, pool.Burst(), all.Burst(), all.Within(all.Period))
			}
		}
	}
}
