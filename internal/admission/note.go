package admission

import (
	"encoding/binary"
	"errors"
	"hash/fnv"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// note is what a hold says of its call, so that whoever sweeps it can tell what
// was lost: a hash of the feature's name (4 bytes), input tokens and worst-case
// pico-dollars (uvarints); at most 20 bytes.
type note struct {
	feature string
	input   int64
	cost    price.Pico
}

func featureHash(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()
}

// The most that a note tells: far above any call that a policy allows.
const (
	mostInput = 1 << 40
	mostCost  = 1 << 62
)

// encode makes a note that decodeNote reads, whatever the figures: a hold whose note
// is not read is never swept.
func (n note) encode() []byte {
	n.input, n.cost = min(max(0, n.input), mostInput), min(max(0, n.cost), mostCost)
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 20), featureHash(n.feature))
	b = binary.AppendUvarint(b, uint64(n.input))
	return binary.AppendUvarint(b, uint64(n.cost))
}

// decodeNote reads a note; a feature that is no longer offered comes out empty.
func decodeNote(b []byte, features map[string]*policy.Feature) (note, error) {
	bad := errors.New("malformed note")
	if len(b) < 4 {
		return note{}, bad
	}
	hash, b := binary.BigEndian.Uint32(b), b[4:]
	input, n := binary.Uvarint(b)
	if n <= 0 {
		return note{}, bad
	}
	cost, m := binary.Uvarint(b[n:])
	if m <= 0 || n+m != len(b) || input > mostInput || cost > mostCost {
		return note{}, bad
	}
	result := note{input: int64(input), cost: price.Pico(cost)}
	for name := range features {
		if featureHash(name) == hash {
			result.feature = name
		}
	}
	return result, nil
}
