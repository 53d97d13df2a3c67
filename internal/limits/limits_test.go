package limits

import (
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// One item holds all limits of an identity, so none may share a name, and each must
// be one that a bucket takes.
func TestLimitsOfTheShippedPolicy(t *testing.T) {
	t.Parallel()
	p, err := policy.Load("../../tokenfuse.yaml")
	check.OK(t, err)
	kinds := map[string][]Kind{}
	for name := range p.Tiers {
		kinds[name] = []Kind{User}
	}
	kinds[policy.Anonymous] = []Kind{Network, Pass}
	for name, kinds := range kinds {
		for _, kind := range kinds {
			seen := map[string]bool{}
			limits := Of(p, p.Tiers[name], kind)
			if kind == Network {
				limits = append(limits, OfPasses(p.Tiers[name].Passes))
			}
			for _, l := range limits {
				err := l.Validate()
				check.That(t, err == nil && !seen[l.Name] && l.Unit != "", "%s, %s: limit %+v, %v", name, kind, l, err)
				seen[l.Name] = true
				check.That(t, (!l.OfClient() && l.Role != OfNetwork || kind == Network) && (l.Role != PassCalls || kind == Pass) && (kind != Network || l.Role == OfNetwork || l.OfClient()),
					"%s, %s: limit %+v", name, kind, l)
			}
			check.That(t, len(limits) >= 2, "%s, %s: %d limits", name, kind, len(limits))
		}
	}
}

// A limit below a micro-dollar, as the least pool has, is shown as none.
func TestLeastMoney(t *testing.T) {
	t.Parallel()
	l := Limit{Limit: bucket.Limit{Name: "spend", Capacity: 250_000, Period: time.Minute}, Unit: policy.USDMicros}
	v := ViewOf(l, bucket.Status{Limit: l.Limit, FullIn: time.Minute, NextIn: time.Millisecond})
	check.That(t, v.Capacity == 0 && v.Remaining == 0 && v.Reset == 60 && v.RetryAfter == 1, "%+v", v)
}
