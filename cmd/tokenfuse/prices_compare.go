package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// published is what the package knows of a model.
type published struct {
	ID     string                     `json:"id"` // the model that it took ours for
	Prices map[string]json.RawMessage `json:"prices"`
}

// tiered is a price that rises with the length of the input: a number alone, or
// a base with tiers. A tier holds for input of more tokens than its start.
type tiered struct {
	Base  json.Number `json:"base"`
	Tiers []struct {
		Start int64       `json:"start"`
		Price json.Number `json:"price"`
	} `json:"tiers"`
}

func parsePrice(raw json.RawMessage) (tiered, error) {
	var t tiered
	if len(raw) > 0 && raw[0] != '{' {
		return t, json.Unmarshal(raw, &t.Base)
	}
	return t, json.Unmarshal(raw, &t)
}

// comparePrices says where our prices are not those published. What is not published
// must cost as much as input, which is what it costs where we leave it out.
func comparePrices(ours price.Table, theirs map[string]json.RawMessage) []string {
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	prices := map[string]tiered{}
	for _, key := range []string{"input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok"} {
		raw, ok := theirs[key]
		switch {
		case ok:
		case key == "output_mtok" && ours.Output == 0:
			raw = json.RawMessage("0") // a model that makes vectors
		default:
			raw = theirs["input_mtok"]
		}
		t, err := parsePrice(raw)
		if err != nil || len(t.Tiers) > 1 {
			differ("%s cannot be compared: %s", key, raw)
			return differences
		}
		prices[key] = t
	}

	above := int64(0)
	for _, t := range prices {
		for _, tier := range t.Tiers {
			if above != 0 && above != tier.Start {
				differ("long-context rates begin at %d and at %d", above, tier.Start)
				return differences
			}
			above = tier.Start
		}
	}
	if above != ours.LongAbove {
		differ("long_context above %s, published %s", orNone(ours.LongAbove), orNone(above))
	}
	for _, kind := range []struct {
		name, key   string
		short, long price.Pico
	}{
		{"input", "input_mtok", ours.Input, ours.Long.Input},
		{"cached_input", "cache_read_mtok", ours.CachedInput, ours.Long.CachedInput},
		{"cache_write", "cache_write_mtok", ours.CacheWrite, ours.Long.CacheWrite},
		{"output", "output_mtok", ours.Output, ours.Long.Output},
	} {
		t := prices[kind.key]
		if !samePrice(kind.short, t.Base) {
			differ("%s %s, published %s", kind.name, perMillion(kind.short), t.Base)
		}
		if above == 0 || ours.LongAbove == 0 {
			continue
		}
		long := t.Base
		if len(t.Tiers) > 0 {
			long = t.Tiers[0].Price
		}
		if !samePrice(kind.long, long) {
			differ("long_context %s %s, published %s", kind.name, perMillion(kind.long), long)
		}
	}
	return differences
}

func orNone(n int64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// perMillion is a price by token as dollars per million of them.
func perMillion(p price.Pico) string {
	s := new(big.Rat).SetFrac64(int64(p), 1_000_000).FloatString(6)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// samePrice compares a price by token with dollars per million of them.
func samePrice(ours price.Pico, theirs json.Number) bool {
	dollars, ok := new(big.Rat).SetString(theirs.String())
	return ok && new(big.Rat).SetFrac64(int64(ours), 1_000_000).Cmp(dollars) == 0
}
