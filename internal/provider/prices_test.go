package provider

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Rates in pico-dollars per token: a dollar per million tokens is 1,000,000.
var (
	gpt41Mini = price.Table{Rates: price.Rates{Input: 400_000, CachedInput: 100_000, CacheWrite: 400_000, Output: 1_600_000}}
	gpt6Luna  = price.Table{
		Rates:     price.Rates{Input: 100_000, CachedInput: 10_000, CacheWrite: 125_000, Output: 500_000},
		LongAbove: 272_000, Long: price.Rates{Input: 200_000, CachedInput: 20_000, CacheWrite: 250_000, Output: 750_000},
	}
	claudeSonnet = price.Table{Rates: price.Rates{Input: 2_000_000, CachedInput: 200_000, CacheWrite: 2_500_000, Output: 10_000_000}}
	claudeOpus   = price.Table{Rates: price.Rates{Input: 4_000_000, CachedInput: 200_000, CacheWrite: 5_000_000, Output: 20_000_000}}
	claudeHaiku  = price.Table{
		Rates:     price.Rates{Input: 100_000, CachedInput: 100_000, CacheWrite: 125_000, Output: 500_000},
		LongAbove: 100_000, Long: price.Rates{Input: 500_000, CachedInput: 500_000, CacheWrite: 625_000, Output: 2_500_000},
	}
	bedrockHaiku = price.Table{Rates: price.Rates{Input: 1_000_000, CachedInput: 100_000, CacheWrite: 1_250_000, Output: 5_000_000}}
	bedrockNova  = price.Table{Rates: price.Rates{Input: 300_000, CachedInput: 75_000, CacheWrite: 300_000, Output: 2_500_000}}
	bedrockGPT   = price.Table{Rates: price.Rates{Input: 150_000, CachedInput: 150_000, CacheWrite: 150_000, Output: 600_000}}
)

// Answers in the providers' own shapes come to the bill that the providers would
// write: each token once, by its kind.
func TestAnswersArePriced(t *testing.T) {
	for _, tt := range []struct {
		file  string
		rates price.Table
		usage price.Usage
		cost  price.Pico
	}{
		// 2,006 - 1,920 = 86 uncached at 0.40 = 34,400,000; 1,920 cached at 0.10 =
		// 192,000,000; 300 output at 1.60 = 480,000,000.
		{"openai-cached.json", gpt41Mini, price.Usage{Input: 2006, CachedInput: 1920, Output: 300}, 706_400_000},
		// 75 at 0.10 = 7,500,000; 1,186 output, of which 1,024 reasoning, at 0.50 =
		// 593,000,000. Reasoning is not added to the output again.
		{"openai-reasoning.json", gpt6Luna, price.Usage{Input: 75, Output: 1186, Reasoning: 1024}, 600_500_000},
		// 5,000 - 3,000 - 1,500 = 500 at 0.10 = 50,000,000; 3,000 cached at 0.01 =
		// 30,000,000; 1,500 written at 0.125 = 187,500,000; 200 at 0.50 = 100,000,000.
		{"openai-cache-write.json", gpt6Luna, price.Usage{Input: 5000, CachedInput: 3000, CacheWrite: 1500, Output: 200, Reasoning: 64}, 367_500_000},
		{"openai-cache-write.sse", gpt6Luna, price.Usage{Input: 5000, CachedInput: 3000, CacheWrite: 1500, Output: 200, Reasoning: 64}, 367_500_000},
		// Above 272,000 tokens of input all is dearer. 300,000 - 200,000 - 50,000 = 50,000
		// at 0.20 = 10,000,000,000; 200,000 cached at 0.02 = 4,000,000,000; 50,000 written
		// at 0.25 = 12,500,000,000; 1,000 output at 0.75 = 750,000,000.
		{"openai-long-context.json", gpt6Luna, price.Usage{Input: 300_000, CachedInput: 200_000, CacheWrite: 50_000, Output: 1000}, 27_250_000_000},
		// At 272,000 it is not: 272,000 at 0.10 = 27,200,000,000; 1 at 0.50 = 500,000.
		{"openai-not-yet-long.json", gpt6Luna, price.Usage{Input: 272_000, Output: 1}, 27_200_500_000},

		// 2,095 at 2 = 4,190,000,000; 503 at 10 = 5,030,000,000.
		{"anthropic-plain.json", claudeSonnet, price.Usage{Input: 2095, Output: 503}, 9_220_000_000},
		// input_tokens are those beside the cache: 50 at 2 = 100,000,000; 100,000 read at
		// 0.20 = 20,000,000,000; 248 written at 2.50 = 620,000,000; 503 at 10 =
		// 5,030,000,000.
		{"anthropic-cached.json", claudeSonnet, price.Usage{Input: 100_298, CachedInput: 100_000, CacheWrite: 248, Output: 503}, 25_750_000_000},
		{"anthropic-cached.sse", claudeSonnet, price.Usage{Input: 100_298, CachedInput: 100_000, CacheWrite: 248, Output: 503, Reasoning: 301}, 25_750_000_000},
		// 120 at 4 = 480,000,000; 2,350 output, thinking within, at 20 = 47,000,000,000.
		{"anthropic-thinking.json", claudeOpus, price.Usage{Input: 120, Output: 2350, Reasoning: 2048}, 47_480_000_000},
		// What was read from the cache counts against the 100,000: 40 at 0.50 =
		// 20,000,000; 120,000 read at 0.50 = 60,000,000,000; 2,000 written at 0.625 =
		// 1,250,000,000; 400 at 2.50 = 1,000,000,000.
		{"anthropic-long-context.json", claudeHaiku, price.Usage{Input: 122_040, CachedInput: 120_000, CacheWrite: 2000, Output: 400}, 62_270_000_000},

		// 1,200 at 0.30 = 360,000,000; 350 at 2.50 = 875,000,000.
		{"bedrock-plain.json", bedrockNova, price.Usage{Input: 1200, Output: 350}, 1_235_000_000},
		// inputTokens are those beside the cache: 12 at 1 = 12,000,000; 4,000 read at 0.10
		// = 400,000,000; 1,100 written at 1.25 = 1,375,000,000; 220 at 5 = 1,100,000,000.
		{"bedrock-cached.json", bedrockHaiku, price.Usage{Input: 5112, CachedInput: 4000, CacheWrite: 1100, Output: 220}, 2_887_000_000},
		{"bedrock-cached.jsonl", bedrockHaiku, price.Usage{Input: 5112, CachedInput: 4000, CacheWrite: 1100, Output: 220}, 2_887_000_000},
		// 90 at 0.15 = 13,500,000; 800 output, reasoning within, at 0.60 = 480,000,000.
		{"bedrock-reasoning.json", bedrockGPT, price.Usage{Input: 90, Output: 800}, 493_500_000},
	} {
		t.Run(tt.file, func(t *testing.T) {
			body, err := os.ReadFile(filepath.Join("testdata", "answers", tt.file))
			check.OK(t, err)
			var d dialect
			for _, d = range dialects {
				if strings.HasPrefix(tt.file, d.name) {
					break
				}
			}
			stream := filepath.Ext(tt.file) != ".json"
			answer := string(body)
			if filepath.Ext(tt.file) == ".jsonl" {
				answer = frames(t, body)
			}
			url, _ := d.serve(t, d.answer(stream, answer))
			got, err := call(t.Context(), t, d.make(t, url, nil), request(stream))
			check.Must(t, err == io.EOF, "%v", err)
			want := Part{Content: testAnswer, Reasoning: got.Reasoning, FinishReason: "stop", Usage: &tt.usage}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
			if cost := tt.rates.Cost(*got.Usage); cost != tt.cost {
				t.Errorf("costs %d, want %d", cost, tt.cost)
			}
			worst := tt.rates.WorstCase(got.Usage.Input, got.Usage.Output)
			check.That(t, worst >= tt.cost, "costs %d, more than its worst case %d", tt.cost, worst)
		})
	}
}

// frames encodes lines of {event: payload}.
func frames(t *testing.T, lines []byte) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(string(lines)) {
		var event map[string]json.RawMessage
		check.OK(t, json.Unmarshal([]byte(line), &event))
		for name, payload := range event {
			b.WriteString(frame("event", name, string(payload)))
		}
	}
	return b.String()
}
