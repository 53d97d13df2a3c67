package tokens

import (
	_ "embed"
	"math/bits"
)

//go:generate go run gen.go
//go:generate go test -run ^TestIndex$ -update .

// The vocabularies, see VOCABULARY.md for their origin, and what finds tokens in
// them: to make it at each start would take longer than all the rest of a start.
var (
	//go:embed o200k_base.bin
	o200kFile string
	//go:embed o200k_base.index
	o200kIndex string
	//go:embed cl100k_base.bin
	cl100kFile string
	//go:embed cl100k_base.index
	cl100kIndex string
)

// noRank is the rank of what is no token: greater than any.
const noRank = 1<<32 - 1

// vocabulary finds the rank of a token: its number, and its turn in merging.
//
// It is a hash table with open addressing, at most half full. A slot, of 4 bytes,
// holds in its low bits the rank plus one, 0 meaning free, and in the rest a few
// bits of the hash, so that a miss, the usual case in merging, seldom compares
// bytes.
type vocabulary struct {
	text    string // all tokens by rank, one after the other
	lengths string // of each, a byte
	longest int    // bytes of the longest token
	starts  string // where every token of a rank divisible by block starts in text, 4 bytes each
	slots   string // their number is a power of 2
}

const (
	rankBits = 18 // 262,143 tokens
	rankMask = 1<<rankBits - 1

	block = 16 // few lengths to add up, and a short index
)

// newVocabulary reads a file written by gen.go and its index: the length of the longest
// token, 4 bytes, the starts and the slots.
func newVocabulary(file, index string) *vocabulary {
	size := int(load32(file))
	starts := 4 + (size+block-1)/block*4
	return &vocabulary{text: file[4+size:], lengths: file[4 : 4+size],
		longest: int(load32(index)), starts: index[4:starts], slots: index[starts:]}
}

// token gives the token of a rank.
func (v *vocabulary) token(rank uint32) string {
	first := rank / block * block
	at := int(load32(v.starts[first/block*4:]))
	for _, length := range []byte(v.lengths[first:rank]) {
		at += int(length)
	}
	return v.text[at : at+int(v.lengths[rank])]
}

// rank gives the rank of token, noRank if it is none.
func (v *vocabulary) rank(token string) uint32 {
	if len(token) > v.longest {
		return noRank
	}
	h := hash(token)
	for slot := v.home(h); ; slot = v.next(slot) {
		entry := load32(v.slots[4*slot:])
		if entry == 0 {
			return noRank
		}
		if (entry^uint32(h))&^rankMask != 0 {
			continue
		}
		rank := entry&rankMask - 1
		if v.token(rank) == token {
			return rank
		}
	}
}

// home and next walk the slots where a token of that hash may be.
func (v *vocabulary) home(hash uint64) int { return int(hash>>32) & (len(v.slots)/4 - 1) }
func (v *vocabulary) next(slot int) int    { return (slot + 1) & (len(v.slots)/4 - 1) }

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
