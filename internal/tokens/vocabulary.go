package tokens

import (
	_ "embed"
	"math/bits"
)

//go:generate go run gen.go

// The vocabularies; see VOCABULARY.md for their origin.
var (
	//go:embed o200k_base.bin
	o200kFile string
	//go:embed cl100k_base.bin
	cl100kFile string
)

// noRank is the rank of what is no token: greater than any.
const noRank = 1<<32 - 1

// vocabulary finds the rank of a token: its number, and its turn in merging.
//
// It is a hash table with open addressing, kept at most half full. A slot holds
// in its low bits the rank plus one, 0 meaning free, and in the rest a few bits
// of the hash, so that a miss, the usual case in merging, seldom compares bytes.
type vocabulary struct {
	text    string   // all tokens by rank, one after the other
	starts  []uint32 // where each starts in text, and the end
	slots   []uint32
	longest int // bytes of the longest token
}

const (
	rankBits = 18 // 262,143 tokens
	rankMask = 1<<rankBits - 1
)

// newVocabulary reads a file written by gen.go.
func newVocabulary(file string) *vocabulary {
	size := int(load32(file))
	lengths, text := file[4:4+size], file[4+size:]
	v := &vocabulary{
		text:   text,
		starts: make([]uint32, size+1),
		slots:  make([]uint32, 1<<bits.Len(uint(2*size))),
	}
	at := 0
	for rank := range size {
		end := at + int(lengths[rank])
		v.starts[rank+1] = uint32(end)
		v.longest = max(v.longest, end-at)
		h := hash(text[at:end])
		slot := v.home(h)
		for v.slots[slot] != 0 {
			slot = v.next(slot)
		}
		v.slots[slot] = uint32(h)&^rankMask | uint32(rank+1)
		at = end
	}
	return v
}

// rank gives the rank of token, noRank if it is none.
func (v *vocabulary) rank(token string) uint32 {
	if len(token) > v.longest {
		return noRank
	}
	h := hash(token)
	for slot := v.home(h); ; slot = v.next(slot) {
		entry := v.slots[slot]
		if entry == 0 {
			return noRank
		}
		if (entry^uint32(h))&^rankMask != 0 {
			continue
		}
		rank := entry&rankMask - 1
		if v.text[v.starts[rank]:v.starts[rank+1]] == token {
			return rank
		}
	}
}

// home and next walk the slots where a token of that hash may be.
func (v *vocabulary) home(hash uint64) int { return int(hash>>32) & (len(v.slots) - 1) }
func (v *vocabulary) next(slot int) int    { return (slot + 1) & (len(v.slots) - 1) }

// hash mixes s eight bytes at a time, each by one multiplication whose halves
// are folded, as wyhash does. The table is fixed and so are the keys in it, so
// that nobody can make it degenerate, and no seed is needed.
func hash(s string) uint64 {
	h := uint64(len(s)) * 0x9e3779b97f4a7c15
	for len(s) > 8 {
		h = fold(h^load64(s), 0xd6e8feb86659fd93)
		s = s[8:]
	}
	var tail uint64
	switch {
	case len(s) == 8:
		tail = load64(s)
	case len(s) >= 4:
		tail = uint64(load32(s)) | uint64(load32(s[len(s)-4:]))<<32
	case len(s) > 0:
		tail = uint64(s[0]) | uint64(s[len(s)/2])<<8 | uint64(s[len(s)-1])<<16
	}
	return fold(h^tail, 0xa0761d6478bd642f)
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func load64(s string) uint64 { return uint64(load32(s)) | uint64(load32(s[4:]))<<32 }

func load32(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}
