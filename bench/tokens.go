package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

const (
	englishText = "The notice period is three months to the end of a quarter, unless the parties agree otherwise in writing. " +
		"It doesn't start before the 1st of January 2027; see https://example.com/terms?version=12 for the details.\n\n"
	chineseText = "合同的通知期限为季度末前三个月,除非双方另有书面约定。在此期间,供应商应当继续提供全部服务,并且不得提高价格。\n"
)

// worstTexts are those that make tokenizers slow: words without an end, which
// are merged from their bytes, and what their rules of splitting run back over.
var worstTexts = []struct{ name, unit string }{
	{"a letter", "a"},
	{"random letters", ""},
	{"chinese without a break", "合同的通知期限为季度末前三个月除非双方另有书面约定"},
	{"spaces", " "},
	{"blank lines", "\n "},
	{"control characters", "\u007f"},
	{"combining marks", "\u0301"},
	{"emoji", "👩‍👩‍👧‍👦"},
}

// tokenCounting measures how fast texts are counted, and that a text which is
// ten times as long takes about ten times as long.
func tokenCounting(ctx context.Context, _ *lab) ([]table, error) {
	speed := table{Title: "Token counting, MB/s (texts of 100 KB)", Columns: []column{{"o200k_base", 1}, {"cl100k_base", 1}}}
	growth := table{Title: "Token counting, ns per byte by the length of the text, o200k_base (a quadratic time would grow a hundredfold)",
		Columns: []column{{"10 KB", 1}, {"100 KB", 1}, {"1 MB", 1}, {"1 MB to 10 KB", 2}}}
	var counters []*tokens.Tokenizer
	for _, c := range speed.Columns {
		t, err := tokens.New(c.Name)
		if err != nil {
			return nil, err
		}
		counters = append(counters, t)
	}

	texts := append([]struct{ name, unit string }{{"english", englishText}, {"chinese", chineseText}}, worstTexts...)
	for _, text := range texts {
		long := textOf(text.unit, 100_000)
		row := make([]float64, len(counters))
		for i, c := range counters {
			row[i] = 1e3 / nanosPerByte(c, long)
		}
		speed.add(text.name, row...)
		switch text.unit {
		case englishText:
			speed.expect(atLeast, 25, 0, 1)
		case chineseText:
			speed.expect(atLeast, 8, 0, 1)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	for _, text := range worstTexts {
		var row []float64
		for _, size := range []int{10_000, 100_000, 1_000_000} {
			row = append(row, nanosPerByte(counters[0], textOf(text.unit, size)))
		}
		growth.add(text.name, append(row, row[2]/row[0])...)
		growth.expect(atMost, mostGrowth)
	}
	return []table{speed, growth}, ctx.Err()
}

// mostGrowth leaves room for the logarithm in n log n, 1.5 here, and for what a
// megabyte does to caches.
const mostGrowth = 4

// nanosPerByte is the processor time of the fastest of several counts: other
// work on the machine only ever makes one slower.
func nanosPerByte(t *tokens.Tokenizer, text string) float64 {
	const budget = 100 * time.Millisecond
	fastest := time.Duration(math.MaxInt64)
	begin := processorTime()
	for runs := 0; runs < 3 || processorTime()-begin < budget; runs++ {
		start := processorTime()
		t.Count(text)
		fastest = min(fastest, processorTime()-start)
	}
	return float64(fastest.Nanoseconds()) / float64(len(text))
}

// textOf repeats unit up to a size in bytes; "" stands for random letters.
func textOf(unit string, size int) string {
	if unit != "" {
		return strings.Repeat(unit, size/len(unit)+1)[:size/len(unit)*len(unit)]
	}
	var b strings.Builder
	state := uint32(1)
	for b.Len() < size {
		state = state*1664525 + 1013904223
		fmt.Fprintf(&b, "%c", 'a'+(state>>16)%26)
	}
	return b.String()
}
