package tokens

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// golden is one case of testdata/golden.jsonl; testdata/make.mjs describes it.
type golden struct {
	Text     string
	Repeat   int
	Alphabet []string
	Seed     uint32
	Texts    int
	From, To rune
	O200k    [2]int `json:"o200k_base"`
	CL100k   [2]int `json:"cl100k_base"`
}

func (g golden) each(yield func(string)) {
	switch {
	case g.Alphabet != nil:
		random := xorshift(g.Seed)
		for range g.Texts {
			var text strings.Builder
			for range 1 + random.next(24) {
				text.WriteString(g.Alphabet[random.next(len(g.Alphabet))])
			}
			yield(text.String())
		}
	case g.To > 0:
		for r := g.From; r < g.To; r++ {
			if c := string(r); utf8.ValidRune(r) {
				yield("x" + c + "'s!!" + c + "\n \n" + c + "1234 " + c + "Ab")
			}
		}
	default:
		yield(strings.Repeat(g.Text, max(g.Repeat, 1)))
	}
}

// xorshift is a small random generator that JavaScript can repeat.
type xorshift uint32

func (x *xorshift) next(n int) int {
	*x ^= *x << 13
	*x ^= *x >> 17
	*x ^= *x << 5
	return int(uint32(*x) % uint32(n))
}

func readGolden(t testing.TB) []golden {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.jsonl")
	check.OK(t, err)
	var cases []golden
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var g golden
		err := json.Unmarshal(lines.Bytes(), &g)
		check.Must(t, err == nil, "line %d: %v", len(cases)+1, err)
		cases = append(cases, g)
	}
	check.OK(t, lines.Err())
	return cases
}

// ids encodes text, which Count need not do.
func (e *encoding) ids(text string) []uint32 {
	var ids []uint32
	m := new(merger)
	for len(text) > 0 {
		piece := text[:e.split(text)]
		text = text[len(piece):]
		if e.countPiece(m, piece) == 1 {
			ids = append(ids, e.vocabulary.rank(piece))
			continue
		}
		for start := 0; start < len(piece); {
			end := int(m.parts[start].next)
			ids = append(ids, e.vocabulary.rank(piece[start:end]))
			start = end
		}
	}
	return ids
}

func fnv(hash uint32, id uint32) uint32 {
	for shift := 0; shift < 32; shift += 8 {
		hash = (hash ^ id>>shift&0xff) * 0x01000193
	}
	return hash
}

func TestGolden(t *testing.T) {
	t.Parallel()
	cases := readGolden(t)
	check.Must(t, len(cases) >= 4000, "only %d cases", len(cases))
	for _, name := range []string{o200kBase, cl100kBase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokenizer := must(t, name)
			e := tokenizer.counter.(*encoding)
			for i, g := range cases {
				want := g.O200k
				if name == cl100kBase {
					want = g.CL100k
				}
				count, hash := 0, uint32(0x811c9dc5)
				g.each(func(text string) {
					ids := e.ids(text)
					count += len(ids)
					for _, id := range ids {
						hash = fnv(hash, id)
					}
					if g.Text != "" && tokenizer.Count(text) != len(ids) {
						t.Errorf("line %d: Count gives %d, not %d", i+1, tokenizer.Count(text), len(ids))
					}
				})
				check.That(t, count == want[0] && int(hash) == want[1], "line %d, %+v: %d tokens, hash %d; want %d, %d", i+1, g, count, hash, want[0], want[1])
			}
		})
	}
}

func must(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tokenizer, err := New(name)
	check.OK(t, err)
	return tokenizer
}
