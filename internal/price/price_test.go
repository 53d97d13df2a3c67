package price

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// mini are the rates of gpt-4.1-mini: $0.40, $0.10 and $1.60 a million.
var mini = Table{Rates: Rates{Input: 400_000, CachedInput: 100_000, CacheWrite: 400_000, Output: 1_600_000}}

// long has cache writes dearer than input and other rates above 200,000 tokens.
var long = Table{
	Rates:     Rates{Input: 3_000_000, CachedInput: 300_000, CacheWrite: 3_750_000, Output: 15_000_000},
	LongAbove: 200_000,
	Long:      Rates{Input: 6_000_000, CachedInput: 600_000, CacheWrite: 7_500_000, Output: 22_500_000},
}

func TestCost(t *testing.T) {
	for _, tc := range []struct {
		name  string
		table Table
		usage Usage
		want  Pico // by hand
	}{
		{"plain", mini, Usage{Input: 1000, Output: 500}, 1000*400_000 + 500*1_600_000},
		{"cached tokens are not charged at both rates", mini, Usage{Input: 1000, CachedInput: 600, Output: 1}, 400*400_000 + 600*100_000 + 1_600_000},
		{"cache writes are charged", long, Usage{Input: 1000, CacheWrite: 1000}, 1000 * 3_750_000},
		{"all kinds of input", long, Usage{Input: 1000, CachedInput: 200, CacheWrite: 300, Output: 10}, 500*3_000_000 + 200*300_000 + 300*3_750_000 + 10*15_000_000},
		{"reasoning is output, once", mini, Usage{Output: 500, Reasoning: 400}, 500 * 1_600_000},
		{"at the edge of long context", long, Usage{Input: 200_000, Output: 1}, 200_000*3_000_000 + 15_000_000},
		{"beyond it the whole call is dearer", long, Usage{Input: 200_001, Output: 1}, 200_001*6_000_000 + 22_500_000},
		{"long from the second token", Table{Rates: Rates{Input: 1}, LongAbove: 1, Long: Rates{Input: 9}}, Usage{Input: 2}, 18},
		{"nothing", mini, Usage{}, 0},
		{"beyond 64 bits", Table{Rates: Rates{Input: 1 << 33}}, Usage{Input: 1 << 31}, math.MaxInt64},
		{"beyond 65 bits", Table{Rates: Rates{Input: 1 << 32}}, Usage{Input: 1 << 32}, math.MaxInt64},
	} {
		check.Equal(t, tc.table.Cost(tc.usage), tc.want, "%s", tc.name)
	}
	// The longest input at the short rates, and one token more; what a budget affords to the
	// last pico-dollar, and one less.
	for input, each := range map[int64]Pico{200_000: 3_750_000, 200_001: 7_500_000} {
		output := long.rates(input).Output
		worst := Pico(input)*each + 2*output
		check.Equal(t, long.WorstCase(input, 2), worst, "at worst %d tokens cost", input)
		for budget, most := range map[Pico]int64{worst: 2, worst - 1: 1, worst - 2*output: 0} {
			check.Equal(t, long.AffordableOutput(input, budget), most, "after %d tokens %d affords", input, budget)
		}
		check.That(t, long.AffordableOutput(input, worst-2*output-1) < 0, "%d tokens of input fit into less", input)
	}
	check.Equal(t, Table{Rates: Rates{Input: 1}}.AffordableOutput(5, 5), 1<<40, "output for nothing")
}

func TestWorstCaseCoversEveryCallWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(name string) Pico { return Pico(rapid.Int64Range(0, 100_000_000).Draw(t, name)) }
		rates := func(name string) Rates {
			return Rates{rate(name + " input"), rate(name + " cached"), rate(name + " write"), rate(name + " output")}
		}
		table := Table{Rates: rates("base"), LongAbove: rapid.Int64Range(0, 1000).Draw(t, "above"), Long: rates("long")}
		input := rapid.Int64Range(0, 2000).Draw(t, "input bound")
		output := rapid.Int64Range(0, 2000).Draw(t, "output bound")
		var u Usage
		u.Input = rapid.Int64Range(0, input).Draw(t, "input")
		u.CachedInput = rapid.Int64Range(0, u.Input).Draw(t, "cached")
		u.CacheWrite = rapid.Int64Range(0, u.Input-u.CachedInput).Draw(t, "written")
		u.Output = rapid.Int64Range(0, output).Draw(t, "output")
		if cost, worst := table.Cost(u), table.WorstCase(input, output); cost > worst {
			t.Fatalf("cost %d exceeds the worst case %d", cost, worst)
		}
		// What is affordable is affordable, and one more is not.
		budget := Pico(rapid.Int64Range(0, 1<<40).Draw(t, "budget"))
		most := table.AffordableOutput(input, budget)
		check.Must(t, most < 0 || table.WorstCase(input, most) <= budget, "%d tokens of output are said to be affordable and are not", most)
		check.Must(t, most >= 1<<40 || table.WorstCase(input, most+1) > budget, "%d tokens of output are affordable, only %d are said to be", most+1, most)
	})
}

// dear are the dearest rates that a policy may have, and dearer ones yet.
var dear = []Table{
	{Rates: Rates{1e10, 1e10, 1e10, 1e10}},
	{Rates: Rates{1e10, 1e10, 1e10, 1e10}, LongAbove: 10, Long: Rates{1e10, 1e10, 1e10, 1e10}},
	{Rates: Rates{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}},
}

// What is beyond int64 is the most that it holds: money that wrapped around would be
// refunded.
func TestSaturation(t *testing.T) {
	for _, table := range dear {
		for _, u := range []Usage{
			{Input: 1 << 40}, {Output: 1 << 40}, {Input: 1 << 40, CachedInput: 1 << 40}, {Input: 1 << 40, CacheWrite: 1 << 40},
			{Input: math.MaxInt64, Output: math.MaxInt64}, {Input: 1 << 62, Output: 1 << 62}, {Input: math.MaxInt64, CachedInput: 1 << 62, CacheWrite: 1 << 61},
		} {
			check.Equal(t, table.Cost(u), math.MaxInt64, "%+v costs", u)
			check.Equal(t, table.WorstCase(u.Input, u.Output), math.MaxInt64, "at worst %+v costs", u)
		}
		for _, input := range []int64{1 << 40, 1 << 62, math.MaxInt64} {
			got := table.AffordableOutput(input, 1e18)
			check.That(t, got < 0, "after %d tokens of input %d of output are affordable", input, got)
		}
	}
	// Just below nothing is lost.
	if got := (Table{Rates: Rates{Input: 1, Output: 1}}).Cost(Usage{Input: math.MaxInt64 - 1, Output: 1}); got != math.MaxInt64 {
		t.Errorf("%d", got)
	}
	if got := (Table{Rates: Rates{Input: 1, Output: 2}}).Cost(Usage{Input: 1, Output: math.MaxInt64 / 2}); got != math.MaxInt64 {
		t.Errorf("%d", got)
	}
	for _, u := range []Usage{{Input: math.MaxInt64, Output: 1}, {Input: 1 << 62, Output: 1 << 62}} {
		check.Equal(t, u.Total(), math.MaxInt64, "%+v is … tokens", u)
	}
	check.Equal(t, (Usage{Input: math.MaxInt64 - 1, Output: 1}).Total(), math.MaxInt64, "tokens")
	check.Equal(t, Sum[Pico](math.MaxInt64-7, 6), math.MaxInt64-1, "the sum is")
}

func TestUsageValid(t *testing.T) {
	for _, u := range []Usage{
		{Input: -1}, {Output: -1}, {Input: 1 << 62}, {Input: 10, CachedInput: 11}, {Input: 10, CachedInput: 6, CacheWrite: 5},
		{Output: 5, Reasoning: 6}, {Input: 10, CacheWrite: -1}, {Output: math.MaxInt64},
	} {
		check.That(t, !u.Valid(), "%+v is valid", u)
	}
	check.That(t, (Usage{Input: 1 << 40, Output: 1 << 40}).Valid() && !(Usage{Input: 1<<40 + 1}).Valid(), "the bound of a usage")
	check.That(t, (Usage{Input: 10, CachedInput: 6, CacheWrite: 4, Output: 5, Reasoning: 5}).Valid(), "a true usage is invalid")
}

func TestPico(t *testing.T) {
	for p, want := range map[Pico]string{
		0: "0", Dollar: "1", 1: "0.000000000001", 660_400_000: "0.0006604", 20*Dollar + Dollar/2: "20.5",
		-Dollar / 4: "-0.25", -1: "-0.000000000001", math.MinInt64: "-9223372.036854775808", math.MaxInt64: "9223372.036854775807",
	} {
		check.Equal(t, p.String(), want, "%d", int64(p))
	}
	for p, want := range map[Pico]int64{0: 0, 1: 1, 1_000_000: 1, 1_000_001: 2, Dollar: 1_000_000, math.MaxInt64: 9_223_372_036_855} {
		check.Equal(t, p.MicroDollars(), want, "%d: micro-dollars", int64(p))
	}
}
