package tokens

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var update = flag.Bool("update", false, "write the indexes anew")

// makeIndex makes the index of a vocabulary.
func makeIndex(file string) string {
	size := int(load32(file))
	lengths, text := file[4:4+size], file[4+size:]
	v := &vocabulary{slots: string(make([]byte, 4<<bits.Len(uint(2*size))))}
	slots := []byte(v.slots)
	var starts []byte
	at := 0
	for rank := range size {
		if rank%block == 0 {
			starts = binary.LittleEndian.AppendUint32(starts, uint32(at))
		}
		length := int(lengths[rank])
		h := hash(text[at : at+length])
		slot := v.home(h)
		for binary.LittleEndian.Uint32(slots[4*slot:]) != 0 {
			slot = v.next(slot)
		}
		binary.LittleEndian.PutUint32(slots[4*slot:], uint32(h)&^rankMask|uint32(rank+1))
		v.longest = max(v.longest, length)
		at += length
	}
	return string(binary.LittleEndian.AppendUint32(nil, uint32(v.longest))) + string(starts) + string(slots)
}

// TestIndex: the indexes are those of the vocabularies.
func TestIndex(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, index string }{{o200kBase, o200kFile, o200kIndex}, {cl100kBase, cl100kFile, cl100kIndex}} {
		want := makeIndex(c.file)
		if *update {
			check.OK(t, os.WriteFile(c.name+".index", []byte(want), 0o644))
		} else if c.index != want {
			t.Errorf("%s.index is not what the vocabulary and hash make: run go generate", c.name)
		}
	}
}

// What gen.go writes is pinned, so that no count changes unnoticed.
func TestTablesArePinned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, content, sum string }{
		{"o200k_base.bin", o200kFile, "ba55b38e477b631966c2496061ecd7d10108501c7c47358222d9dc27c22f9422"},
		{"cl100k_base.bin", cl100kFile, "79045c4dbf49c4e3b90893afbcbfd80cf94cf2b99256bd84b19ffcace49d9bd2"},
		{"unicode16.bin", classes, "4dde7dada5211398dd77b1d234de126544eee447a8814837a5e3e8e330327f26"},
	} {
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(c.content)))
		check.That(t, sum == c.sum, "%s has sha256 %s, want %s", c.name, sum, c.sum)
	}
}

func TestEveryTokenHasItsRank(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		size int
	}{{o200kBase, 199_998}, {cl100kBase, 100_256}} {
		v := must(t, c.name).counter.(*encoding).vocabulary
		if got := len(v.lengths); got != c.size || v.longest != 128 {
			t.Errorf("%s: %d tokens of up to %d bytes, want %d of up to 128", c.name, got, v.longest, c.size)
		}
		for rank := range c.size {
			token := v.token(uint32(rank))
			got := v.rank(token)
			check.Must(t, got == uint32(rank), "%s: %q has rank %d, want %d", c.name, token, got, rank)
		}
		for i := range 256 {
			b := string([]byte{byte(i)})
			check.That(t, v.rank(b) != noRank, "%s: byte %#x is no token: not every text can be encoded", c.name, i)
		}
		for _, text := range []string{"", "<|endoftext|>", "<|im_start|>", "\xff\xfe\xfd"} {
			check.That(t, v.rank(text) == noRank, "%s: %q is a token", c.name, text)
		}
	}
}

// A lookup walks at most one run of used slots, whatever text a caller chose.
func TestLookupsAreShort(t *testing.T) {
	t.Parallel()
	for _, name := range []string{o200kBase, cl100kBase} {
		v := must(t, name).counter.(*encoding).vocabulary
		longest, run := 0, 0
		size := len(v.slots) / 4
		for i := range 2 * size { // a run may reach across the end
			if run++; load32(v.slots[4*(i%size):]) == 0 {
				run = 0
			}
			longest = max(longest, run)
		}
		check.That(t, longest <= 64, "%s: a run of %d used slots", name, longest)
		t.Logf("%s: longest run %d of %d slots", name, longest, size)
	}
}
