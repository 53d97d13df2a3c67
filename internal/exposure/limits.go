package exposure

import (
	"fmt"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// bound is an amount, and what keeps it there.
type bound struct {
	amount Amount
	by     string // a limit's or a pool's name, or a sum; empty: nothing
}

// nothing bounds nothing.
var nothing = bound{amount: Unbounded}

// boundBy is nothing if the amount is Unbounded.
func boundBy(amount Amount, format string, args ...any) bound {
	if amount == Unbounded {
		return nothing
	}
	return bound{amount, fmt.Sprintf(format, args...)}
}

// or is the lower of two bounds.
func (b bound) or(other bound) bound {
	if other.amount < b.amount {
		return other
	}
	return b
}

// times is b of n.
func (b bound) times(n int64) bound {
	return boundBy(b.amount.times(n), "%s x %s", thousands(n), b.amount)
}

// menu is what the callers of a tier may ask for: one feature, or any of several.
type menu struct {
	dearest Amount // the dearest call
	parts   []part
}

// part is a model with the caps under which it is called.
type part struct {
	prices        price.Table
	input, output int64 // tokens a call
}

func menuOf(p *policy.Policy, t *policy.Tier, features ...string) menu {
	var m menu
	for _, name := range features {
		f := p.Features[name]
		_, worst := p.WorstCase(f, t)
		m.dearest = max(m.dearest, Amount(worst))
		for _, model := range f.Models() {
			m.parts = append(m.parts, part{model.Prices, t.MaxInputTokens, min(f.MaxOutputTokens, t.MaxOutputTokens)})
		}
	}
	return m
}

// worth is the most that n tokens can cost, however they are split into calls.
func (m menu) worth(n int64) Amount {
	var most Amount
	for _, p := range m.parts {
		most = max(most, p.worth(n))
	}
	return most
}

func (p part) worth(n int64) Amount {
	// Any split will do: all tokens at the dearer of input and output.
	short := price.Table{Rates: p.prices.Rates}
	most := Amount(max(short.WorstCase(1, 0), short.WorstCase(0, 1))).times(n)
	if p.prices.LongAbove == 0 || p.input <= p.prices.LongAbove {
		return most
	}
	// A call at long-context rates has more than LongAbove input tokens. Its tokens
	// cost the most on average either with the least input and the most output that
	// such a call can have, or with input alone.
	long, least := price.Table{Rates: p.prices.Long}, p.prices.LongAbove+1
	return max(most,
		share(Amount(long.WorstCase(least, p.output)), n, least+p.output),
		Amount(long.WorstCase(1, 0)).times(n))
}

// calls are those whose cost is asked for.
type calls uint8

const (
	// billed are all calls that the provider may bill, whatever it answers.
	billed calls = iota
	// answered are those that gave their caller something.
	answered
)

// limits are the limits of one identity, nil where there is none.
type limits struct {
	tokens, requests, spend *policy.Limit
	calls                   int64 // in all, of a pass; 0: any number
}

// admit is the most that the limits let through in d, if they are full at first. The
// tightest of them counts. Answered calls alone use up tokens and the calls of a pass;
// every call uses up requests, and every billed call uses up dollars.
func (l limits) admit(m menu, d time.Duration, of calls) bound {
	b := nothing
	if l.spend != nil {
		const micro = Amount(price.Dollar / 1_000_000)
		b = b.or(bound{micro.times(within(l.spend, d)), l.spend.Name})
	}
	if l.tokens != nil && of == answered {
		b = b.or(bound{m.worth(within(l.tokens, d)), l.tokens.Name})
	}
	if l.requests != nil {
		b = b.or(bound{m.dearest.times(within(l.requests, d)), l.requests.Name})
	}
	if l.calls > 0 && of == answered {
		b = b.or(bound{m.dearest.times(l.calls), "calls"})
	}
	return b
}

// within is what a limit admits in d: its capacity, and what is refilled in d.
func within(l *policy.Limit, d time.Duration) int64 {
	return l.Capacity + int64(share(Amount(l.Capacity), int64(d/time.Second), int64(l.Period/time.Second)))
}

// poolBound is the most that any hour can cost of a pool. Its ceiling holds for its own
// period; of an hour that is more or less than the ceiling.
func poolBound(p *policy.Pool) bound {
	return boundBy(Amount(p.Within(time.Hour)), "pool %s", p.Name)
}
