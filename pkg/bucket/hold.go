package bucket

import (
	"encoding/binary"
	"errors"
	"strings"
)

// A hold is the mark of an open call in its identity's item. It carries what
// whoever sweeps it needs, whatever the configuration is by then: when it
// expires, by how many microseconds the limits moved that a sweep gives back,
// and the caller's note. Its encoding is compact, since an item above 1 KB costs
// two write units:
//
//	live   0x01, start (8 bytes, µs), life (uvarint, ms), length of the client's
//	       key, the key, number of increments owed (1 byte), for each: length of
//	       name, name ("." before it: of the identity, not of the client), period
//	       (uvarint, s), increment (uvarint, µs); then the note up to the end
//	dead   0x00, expiry (8 bytes, µs)
//
// A dead hold is a tombstone: it bars a send of its reservation that may still
// be under way.
type hold struct {
	start, expiry micros
	client        string
	owed          []owed
	note          []byte
	dead          bool
}

// owed is an increment that comes back when the hold expires.
type owed struct {
	slot
	inc micros
}

const (
	kindDead = 0
	kindLive = 1

	// ofIdentity stands before the name of an identity's own limit in a client's hold.
	ofIdentity = "."

	// MaxNote is the longest note of a hold, in bytes.
	MaxNote = 20

	// maxSpan bounds a decoded time span, in s or ms, far below overflow in µs.
	maxSpan = 1 << 40
)

var errHold = errors.New("bucket: malformed hold")

func (h hold) encode() []byte {
	b := make([]byte, 0, 64)
	if h.dead {
		b = append(b, kindDead)
		return binary.BigEndian.AppendUint64(b, uint64(h.expiry))
	}
	b = append(b, kindLive)
	b = binary.BigEndian.AppendUint64(b, uint64(h.start))
	b = binary.AppendUvarint(b, uint64((h.expiry-h.start)/milli))
	b = append(b, byte(len(h.client)))
	b = append(b, h.client...)
	b = append(b, byte(len(h.owed)))
	for _, r := range h.owed {
		name := r.name
		if r.client != h.client {
			name = ofIdentity + name
		}
		b = append(b, byte(len(name)))
		b = append(b, name...)
		b = binary.AppendUvarint(b, uint64(r.period/second))
		b = binary.AppendUvarint(b, uint64(r.inc))
	}
	return append(b, h.note...)
}

func decodeHold(b []byte) (hold, error) {
	if len(b) < 9 || b[0] > kindLive {
		return hold{}, errHold
	}
	at := micros(binary.BigEndian.Uint64(b[1:]))
	if b[0] == kindDead {
		return hold{dead: true, expiry: at}, nil
	}
	d := decoder{b: b[9:]}
	h := hold{start: at}
	h.expiry = at + micros(d.uvarint(maxSpan))*milli
	h.client = string(d.bytes(int(d.byte())))
	for range d.byte() {
		r := owed{slot: slot{client: h.client, name: string(d.bytes(int(d.byte())))}}
		if own, found := strings.CutPrefix(r.name, ofIdentity); found && h.client != "" {
			r.client, r.name = "", own
		}
		r.period = micros(d.uvarint(maxSpan)) * second
		r.inc = micros(d.uvarint(uint64(maxIncrement)))
		h.owed = append(h.owed, r)
	}
	if d.bad {
		return hold{}, errHold
	}
	h.note = d.b
	return h, nil
}

// decoder reads a hold; after the first thing that is not there it is bad and
// gives zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) bytes(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint(limit uint64) int64 {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 || v > limit {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return int64(v)
}
