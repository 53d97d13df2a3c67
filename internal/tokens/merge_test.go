package tokens

import (
	"math"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// worstWords are words that have to be merged from their bytes, as one piece.
var worstWords = []string{"a", "ab", "the", "xq", "abcdefghijklmnopqrstuvwxyz", "中", "人工智能", "é", "ก"}

// The bound that merger promises, by its own count of work, at growing sizes.
func TestMergingIsBounded(t *testing.T) {
	t.Parallel()
	for _, name := range []string{o200kBase, cl100kBase} {
		v := must(t, name).counter.(*encoding).vocabulary
		for _, unit := range worstWords {
			for n := 1 << 8; n <= 1<<16; n <<= 2 {
				piece := strings.Repeat(unit, n/len(unit))
				m := new(merger)
				m.merge(v, piece)
				check.That(t, m.work <= 3*len(piece), "%s: %q to %d bytes took %d pairs", name, unit, len(piece), m.work)
			}
		}
	}
}

// mergeByDefinition joins the lowest pair until there is none: quadratic, and
// plainly right.
func mergeByDefinition(v *vocabulary, piece string) []string {
	var parts []string
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		lowest, at := uint32(math.MaxUint32), -1
		for i := range len(parts) - 1 {
			if rank := v.rank(parts[i] + parts[i+1]); rank < lowest {
				lowest, at = rank, i
			}
		}
		if at < 0 {
			return parts
		}
		parts[at] += parts[at+1]
		parts = append(parts[:at+1], parts[at+2:]...)
	}
}

func TestMergeByDefinition(t *testing.T) {
	t.Parallel()
	random := xorshift(1)
	for _, name := range []string{o200kBase, cl100kBase} {
		v := must(t, name).counter.(*encoding).vocabulary
		m := new(merger)
		for range 2000 {
			letters := "etaoinshrdlu\x80\xb8\xe4"[:3+random.next(13)]
			piece := make([]byte, 1+random.next(60))
			for i := range piece {
				piece[i] = letters[random.next(len(letters))]
			}
			want := mergeByDefinition(v, string(piece))
			got := m.merge(v, string(piece))
			check.Must(t, got == len(want), "%s: %q merges into %d tokens, want %q", name, piece, got, want)
			end := 0
			for i, token := range want {
				if end += len(token); m.end(i+1) != end {
					t.Fatalf("%s: token %d of %q ends at %d, want %q", name, i, piece, m.end(i+1), want)
				}
			}
		}
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	texts := []string{english, chinese, strings.Repeat("a", 10_000), strings.Repeat("\u0301", 1000)}
	for _, name := range []string{o200kBase, cl100kBase} {
		e := must(t, name).counter.(*encoding)
		m := new(merger)
		for _, text := range texts {
			if n := testing.AllocsPerRun(5, func() {
				for rest := text; len(rest) > 0; {
					end := e.split(rest)
					e.countPiece(m, rest[:end])
					rest = rest[end:]
				}
			}); n != 0 {
				t.Errorf("%s: %v allocations for %.20q", name, n, text)
			}
		}
	}
}
