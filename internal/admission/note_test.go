package admission

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var noteFeatures = map[string]*policy.Feature{"docqa": {}, "cv": {}, "a-name-of-32-characters-or-so-xxx": {}}

func TestNote(t *testing.T) {
	t.Parallel()
	for name := range noteFeatures {
		for _, n := range []note{
			{name, 0, 0},
			{name, 1, 1},
			{name, 12_000, 8_000_000_000},
			{name, 10_000_000, 1000 * price.Dollar}, // beyond any context window and any price
			{name, 1 << 40, 1 << 62},
		} {
			b := n.encode()
			check.That(t, len(b) <= bucket.MaxNote, "%+v takes %d bytes", n, len(b))
			got, err := decodeNote(b, noteFeatures)
			check.That(t, err == nil && got == n, "%+v came back as %+v, %v", n, got, err)
		}
	}
	// A hold whose note cannot be read would never be swept.
	for _, n := range []note{{"cv", math.MaxInt64, math.MaxInt64}, {"cv", -1, -1}} {
		if got, err := decodeNote(n.encode(), noteFeatures); err != nil || got.input < 0 || got.cost < 0 || len(n.encode()) > bucket.MaxNote {
			t.Errorf("%+v came back as %+v, %v", n, got, err)
		}
	}
	gone := note{"dropped", 7, 8}
	got, err := decodeNote(gone.encode(), noteFeatures)
	check.That(t, err == nil && got == (note{"", 7, 8}), "of a feature that is no longer offered: %+v, %v", got, err)
}

func TestMalformedNote(t *testing.T) {
	t.Parallel()
	good := note{"cv", 300, 70_000}.encode()
	numbers := func(ns ...uint64) []byte {
		b := append([]byte(nil), good[:4]...)
		for _, n := range ns {
			b = binary.AppendUvarint(b, n)
		}
		return b
	}
	for name, b := range map[string][]byte{
		"nil":                 nil,
		"part of the feature": good[:3],
		"the feature alone":   good[:4],
		"part of the input":   good[:5],
		"no cost":             good[:6],
		"part of the cost":    good[:len(good)-1],
		"more after the cost": append(append([]byte(nil), good...), 0),
		"absurd input":        numbers(1<<40+1, 1),
		"absurd cost":         numbers(1, 1<<62+1),
		"a number too long":   append(numbers(1), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
	} {
		if n, err := decodeNote(b, noteFeatures); err == nil {
			t.Errorf("%s: read as %+v", name, n)
		}
	}
}

func FuzzDecodeNote(f *testing.F) {
	f.Add(note{"cv", 300, 70_000}.encode())
	f.Add(note{"docqa", 1 << 40, 1 << 62}.encode())
	f.Add(note{"dropped", 0, 0}.encode())
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeNote(b, noteFeatures)
		if err != nil {
			check.Equal(t, n, (note{}), "a refused note gives")
			return
		}
		check.Must(t, n.input >= 0 && n.input <= 1<<40 && n.cost >= 0 && n.cost <= 1<<62, "absurd %+v", n)
		again, err := decodeNote(n.encode(), noteFeatures)
		check.That(t, err == nil && (again == n || n.feature == ""), "%+v came back as %+v, %v", n, again, err)
	})
}
