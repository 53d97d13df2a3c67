package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Prices as they are read from a configuration: what it leaves out costs as much
// as input.
var (
	flat = price.Table{Rates: price.Rates{Input: 750_000, CachedInput: 75_000, CacheWrite: 750_000, Output: 4_500_000}}
	long = price.Table{
		Rates:     price.Rates{Input: 100_000, CachedInput: 10_000, CacheWrite: 125_000, Output: 500_000},
		LongAbove: 272000,
		Long:      price.Rates{Input: 200_000, CachedInput: 20_000, CacheWrite: 250_000, Output: 750_000},
	}
)

const (
	flatJSON = `{"input_mtok":0.75,"cache_read_mtok":0.075,"output_mtok":4.5,"web_searches_kcount":10}`
	longJSON = `{"input_mtok":{"base":0.1,"tiers":[{"start":272000,"price":0.2}]},
		"cache_write_mtok":{"base":0.125,"tiers":[{"start":272000,"price":0.25}]},
		"cache_read_mtok":{"base":0.01,"tiers":[{"start":272000,"price":0.02}]},
		"output_mtok":{"base":0.5,"tiers":[{"start":272000,"price":0.75}]}}`
)

func TestComparePrices(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		ours   price.Table
		theirs string
		change []string // old and new, in theirs
		want   string   // how the differences begin, joined by " | "
	}{
		{"the same", flat, flatJSON, nil, ""},
		{"the same, long", long, longJSON, nil, ""},
		{"an exponent", price.Table{Rates: price.Rates{Input: 1, CachedInput: 1, CacheWrite: 1, Output: 0}}, `{"input_mtok":1e-6,"output_mtok":0}`, nil, ""},
		{"vectors", price.Table{Rates: price.Rates{Input: 20_000, CachedInput: 20_000, CacheWrite: 20_000}}, `{"input_mtok":0.02}`, nil, ""},

		{"input", flat, flatJSON, []string{"0.75,", "0.8,"}, "input 0.75, published 0.8 | cache_write 0.75, published 0.8"},
		{"the last digit", flat, flatJSON, []string{"4.5,", "4.500001,"}, "output 4.5, published 4.500001"},
		{"below the last digit", flat, flatJSON, []string{"4.5,", "4.5000001,"}, "output 4.5, published 4.5000001"},
		{"a cheaper cache", flat, flatJSON, []string{"0.075", "0.0375"}, "cached_input 0.075, published 0.0375"},
		{"no price of the cache", flat, flatJSON, []string{`"cache_read_mtok":0.075,`, ""}, "cached_input 0.075, published 0.75"},
		{"a price of cache writes", flat, flatJSON, []string{`"output_mtok"`, `"cache_write_mtok":0.9375,"output_mtok"`}, "cache_write 0.75, published 0.9375"},
		{"no price of output", flat, flatJSON, []string{`"output_mtok":4.5,`, ""}, "output 4.5, published 0.75"},

		{"long context is new", flat, longJSON, nil, "long_context above none, published 272000 | "},
		{"long context is gone", long, flatJSON, nil, "long_context above 272000, published none"},
		{"another threshold", long, longJSON, []string{"272000", "200000"}, "long_context above 272000, published 200000"},
		{"long output", long, longJSON, []string{`"price":0.75`, `"price":0.8`}, "long_context output 0.75, published 0.8"},
		{"long output costs no more", long, longJSON, []string{`{"base":0.5,"tiers":[{"start":272000,"price":0.75}]}`, "0.5"}, "long_context output 0.75, published 0.5"},
		{"two thresholds", long, longJSON, []string{`272000,"price":0.75`, `300000,"price":0.75`}, "long-context rates begin at"},
		{"three rates", long, longJSON, []string{`{"start":272000,"price":0.75}`, `{"start":272000,"price":0.75},{"start":500000,"price":1}`}, "output_mtok cannot be compared"},
		{"nonsense", flat, flatJSON, []string{"4.5", `"free"`}, "output_mtok cannot be compared"},
		{"nothing", flat, `{}`, nil, "input_mtok cannot be compared"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var theirs map[string]json.RawMessage
			check.OK(t, json.Unmarshal([]byte(strings.NewReplacer(test.change...).Replace(test.theirs)), &theirs))
			got := strings.Join(comparePrices(test.ours, theirs), " | ")
			check.That(t, strings.HasPrefix(got, test.want) && (got == "") == (test.want == ""), "got %q, want %q", got, test.want)
		})
	}
}

func TestReportPrices(t *testing.T) {
	t.Parallel()
	theirs := func(id string) *published {
		p := &published{ID: id}
		check.OK(t, json.Unmarshal([]byte(flatJSON), &p.Prices))
		return p
	}
	dear := flat
	dear.Output++
	models := []*policy.Model{{Name: "a", ID: "m-1", Prices: flat}, {Name: "b", ID: "m-1-2026", Prices: dear}, {Name: "c", ID: "m-2", Prices: flat}}
	found := []*published{theirs("m-1"), theirs("m-1"), nil}
	for _, test := range []struct {
		meant []string
		same  bool
		b     string
	}{
		{nil, false, "b: DIFFERS from what is published for m-1: output 4.500001, published 4.5"},
		{[]string{"a", "b"}, true, "b: differs from what is published for m-1, as meant: output 4.500001, published 4.5"},
	} {
		var w strings.Builder
		same := reportPrices(&w, "f", models, found, test.meant)
		want := "f: a: as published\nf: " + test.b + "\nf: c: m-2 is not published there: check it by hand\n"
		check.That(t, same == test.same && w.String() == want, "got %t\n%s\nwant %t\n%s", same, &w, test.same, want)
	}
}
