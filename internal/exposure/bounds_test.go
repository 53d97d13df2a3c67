package exposure

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func rates(t *rapid.T, name string) price.Rates {
	r := rapid.Int64Range(0, 9)
	return price.Rates{Input: price.Pico(r.Draw(t, name+" input")), CachedInput: price.Pico(r.Draw(t, name+" cached")),
		CacheWrite: price.Pico(r.Draw(t, name+" write")), Output: price.Pico(r.Draw(t, name+" output"))}
}

// TestWorthOfTokens compares with the best of all ways to split tokens into
// calls.
func TestWorthOfTokens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := part{
			prices: price.Table{Rates: rates(t, "short"), LongAbove: rapid.Int64Range(0, 8).Draw(t, "above"), Long: rates(t, "long")},
			input:  rapid.Int64Range(1, 10).Draw(t, "input"), output: rapid.Int64Range(1, 6).Draw(t, "output"),
		}
		best, dearest := make([]price.Pico, 41), price.Pico(0) // by number of tokens
		for n := range best {
			if n > 0 {
				best[n] = best[n-1]
			}
			for i := int64(0); i <= p.input; i++ {
				for o := int64(0); o <= p.output && i+o <= int64(n); o++ {
					cost := p.prices.WorstCase(i, o)
					dearest = max(dearest, cost)
					if rest := int64(n) - i - o; i+o > 0 {
						best[n] = max(best[n], cost+best[rest])
					}
				}
			}
		}
		for n := range best {
			got := price.Pico(p.worth(int64(n)))
			check.Must(t, got >= best[n], "%d tokens can cost %d, not only %d", n, best[n], got)
			check.Must(t, got <= best[n]+dearest, "%d tokens cost at most %d, so %d is too pessimistic", n, best[n], got)
		}
	})
}

// TestPoolBound holds an hour against what the ceiling itself promises for its
// own period.
func TestPoolBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &policy.Pool{Name: "p", Ceiling: price.Pico(rapid.Int64Range(4, math.MaxInt64/10_000).Draw(t, "ceiling")),
			Period: time.Duration(rapid.Int64Range(1, 366*86400).Draw(t, "seconds")) * time.Second}
		got := poolBound(p).amount
		periods := int64((time.Hour + p.Period - 1) / p.Period)
		check.Must(t, got <= Amount(p.Ceiling).times(periods), "%s is more than %d periods of %s", got, periods, p.Ceiling)
		check.Must(t, got >= Amount(p.Burst()) && (p.Period != time.Hour || got == Amount(p.Ceiling)), "%s is too little", got)
	})
	check.Equal(t, poolBound(&policy.Pool{Ceiling: 7 * price.Dollar, Period: time.Hour}).amount, 7*dollar, "an hour of $7 an hour is")
}

// drawn is a policy with everything that bounds, or not.
func drawn(t *rapid.T) *policy.Policy {
	limit := func(name string, unit policy.Unit) *policy.Limit {
		if !rapid.Bool().Draw(t, name) {
			return nil
		}
		return &policy.Limit{Name: name, Unit: unit,
			Capacity: rapid.Int64Range(1, 1_000_000_000_000).Draw(t, name+" capacity"),
			Period:   time.Duration(rapid.Int64Range(1, 366*86400).Draw(t, name+" period")) * time.Second}
	}
	p := &policy.Policy{Features: map[string]*policy.Feature{}, Tiers: map[string]*policy.Tier{}, Pools: map[string]*policy.Pool{}}
	for _, name := range []string{"a", "b"} {
		m := &policy.Model{Name: name, Prices: price.Table{Rates: rates(t, name), LongAbove: rapid.Int64Range(0, 2000).Draw(t, "above"), Long: rates(t, name+" long")}}
		m.Prices.Output *= price.Pico(rapid.Int64Range(1, 1_000_000_000).Draw(t, "dear"))
		p.Features[name] = &policy.Feature{Name: name, Model: m, MaxOutputTokens: rapid.Int64Range(1, 100_000_000).Draw(t, "output")}
	}
	for _, name := range []string{policy.PoolAll, "p", "q"} {
		if rapid.Bool().Draw(t, "pool "+name) {
			p.Pools[name] = &policy.Pool{Name: name, Ceiling: price.Pico(rapid.Int64Range(4, 1_000_000_000_000_000_000).Draw(t, "ceiling")),
				Period: time.Duration(rapid.Int64Range(1, 366*86400).Draw(t, "period")) * time.Second}
		}
	}
	for _, name := range []string{policy.Anonymous, policy.User, "pro"} {
		tier := &policy.Tier{Name: name, MaxInputTokens: rapid.Int64Range(1, 100_000_000).Draw(t, "input"), MaxOutputTokens: 4000,
			Tokens: limit("tokens", policy.Tokens), Requests: limit("requests", policy.Requests), Spend: limit("spend", policy.USDMicros)}
		if pool := p.Pools[rapid.SampledFrom([]string{"", "p", "q"}).Draw(t, "of tier")]; pool != nil {
			tier.Pool = pool.Name
		}
		p.Tiers[name] = tier
	}
	anonymous := p.Tiers[policy.Anonymous]
	if rapid.Bool().Draw(t, "network") {
		anonymous.Network = &policy.Network{Tokens: limit("network_tokens", policy.Tokens), Requests: limit("network_requests", policy.Requests)}
	}
	if passes := limit("passes", policy.Requests); passes != nil {
		p.Challenge = &policy.Challenge{}
		anonymous.Passes = &policy.Passes{Limit: *passes, TTL: time.Duration(rapid.Int64Range(1, 86400).Draw(t, "ttl")) * time.Second, Calls: rapid.IntRange(1, 1_000_000).Draw(t, "calls")}
	}
	if rapid.Bool().Draw(t, "auth") {
		p.Auth = &policy.Auth{}
	}
	if rapid.Bool().Draw(t, "backend") {
		p.Pools["own"] = &policy.Pool{Name: "own", Ceiling: price.Pico(rapid.Int64Range(4, 1_000_000_000_000_000_000).Draw(t, "own")), Period: time.Hour}
		p.Backends = map[string]*policy.Backend{"web": {Name: "web", Pool: p.Pools["own"],
			Tiers: rapid.SampledFrom([][]string{nil, {policy.User}, {policy.User, "pro"}}).Draw(t, "vouches")}}
	}
	return p
}

// TestOrder: whoever is part of others costs at most as much, and the bundle
// never makes it worse.
func TestOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(t)
		r := Of(p)
		amounts := map[string]Amount{}
		visitors := 0
		for _, l := range r.Lines {
			if l.Backend != "" {
				visitors++
				check.Must(t, l.Who == Backend && l.With <= Amount(p.Pools["own"].Ceiling) && l.With <= r.OneScript, "visitors of a backend: %+v", l)
			}
			amounts[fmt.Sprint(l.Who, " ", l.Tier, " ", l.Feature)] = l.With
			check.Must(t, l.With <= l.Without && l.With <= l.Limits, "the bundle makes it worse: %+v", l)
			check.Must(t, l.Answered <= l.With && ((l.Answered == Unbounded) == (l.AnsweredBy == "") || l.Answered == 0), "answered calls: %+v", l)
			check.Must(t, l.With >= 0 && l.Without >= 0 && l.DearestCall >= 0, "negative: %+v", l)
			check.Must(t, (l.With == Unbounded) == (l.By == "") || l.With == 0, "bounded by %q: %+v", l.By, l)
			check.Must(t, l.With <= r.Everybody, "more than everybody's %s: %+v", r.Everybody, l)
			if tier := p.Tiers[l.Tier]; tier != nil {
				for _, pool := range p.PoolsFor(tier) {
					check.Must(t, l.With <= poolBound(pool).amount, "above pool %s: %+v", pool.Name, l)
				}
			}
		}
		check.Must(t, visitors == len(p.Backends), "%d lines of backends", visitors)
		for _, feature := range []string{"", "a", "b"} {
			last := Amount(0)
			for _, who := range []Who{Client, Network, ManyNetworks, AllAnonymous} {
				got := amounts[fmt.Sprint(who, " anonymous ", feature)]
				check.Must(t, got >= last, "%s %s costs %s, less than its part's %s", who, feature, got, last)
				check.Must(t, got <= amounts[fmt.Sprint(who, " anonymous ")], "%s costs more with %s alone than with any feature", who, feature)
				last = got
			}
		}
		check.Must(t, r.OneScript <= r.Everybody && (r.OneScriptToday >= r.OneScript || r.OneScript == Unbounded),
			"one script: %s, %s of %s", r.OneScriptToday, r.OneScript, r.Everybody)
	})
}

func TestAmount(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		amount     Amount
		text, json string
	}{
		{0, "0.00", `"0"`},
		{1, "0.0001", `"0.000000000001"`},
		{dollar / 50, "0.02", `"0.02"`},
		{1_440_000_000, "0.0015", `"0.00144"`},
		{dollar - 1, "1.00", `"0.999999999999"`},
		{dollar, "1.00", `"1"`},
		{dollar + 1, "1.01", `"1.000000000001"`},
		{1234567*dollar + dollar/2, "1,234,567.50", `"1234567.5"`},
		{Unbounded - 1, "9,223,372.04", `"9223372.036854775806"`},
		{Unbounded, "no bound", "null"},
	} {
		data, err := json.Marshal(test.amount)
		check.That(t, test.amount.String() == test.text && string(data) == test.json && err == nil,
			"got %s, %s, %v, want %s, %s", test.amount, data, err, test.text, test.json)
		var back Amount
		if err := json.Unmarshal(data, &back); err != nil || back != test.amount {
			t.Errorf("%s came back as %d, %v", data, back, err)
		}
	}
	for _, s := range []string{`1`, `""`, `"."`, `".5"`, `"-1"`, `"1e3"`, `"1,000"`, `"0.0000000000001"`, `"9223372.036854775808"`, `"1.2.3"`, `[]`, `true`} {
		err := json.Unmarshal([]byte(s), new(Amount))
		check.That(t, err != nil, "%s is taken for an amount", s)
	}
}

func TestArithmeticSaturates(t *testing.T) {
	t.Parallel()
	const half = Amount(math.MaxInt64 / 2)
	for name, test := range map[string]struct{ got, want Amount }{
		"sum":               {half.plus(half), Unbounded - 1},
		"sum too large":     {half.plus(half).plus(2), Unbounded},
		"sum without bound": {Unbounded.plus(0), Unbounded},
		"product":           {half.times(2), Unbounded - 1},
		"product too large": {half.times(3), Unbounded},
		"huge":              {half.times(math.MaxInt64), Unbounded},
		"none of unbounded": {Unbounded.times(0), Unbounded},
		"share rounds up":   {share(10, 1, 3), 4},
		"exact share":       {share(9, 1, 3), 3},
		"large share":       {share(half, 1_000_000, 1_000_000), half},
	} {
		check.Equal(t, test.got, test.want, "%s: got", name)
	}
}
