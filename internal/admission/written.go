package admission

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// written is the JSON of a tool's arguments as a model has at least had to write it: without
// blanks between the values, and with its characters as they are. Many servers read what
// their models write and write it anew, with blanks, or with six bytes for a letter: an
// answer is not to be taken for longer than it was for that.
//
// It is read in pieces; the zero value begins.
type written struct {
	quoted, escaped bool
	hex             bool // a \u has not come to its end:
	digits          [4]byte
	n               int  // of digits
	high            rune // the first half of a pair
}

// add gives what a piece adds to the text.
func (w *written) add(piece string) string {
	out := make([]byte, 0, len(piece))
	for i := range len(piece) {
		out = w.byte(out, piece[i])
	}
	return string(out)
}

// fits gives the beginning of a piece that adds at most n bytes. w stays as it was.
func (w written) fits(piece string, n int) string {
	end := 0
	var out []byte
	for i := range len(piece) {
		before := len(out)
		if out = w.byte(out, piece[i]); len(out) > n {
			break
		}
		if len(out) > before {
			end = i + 1
		}
	}
	return piece[:end]
}

func (w *written) byte(out []byte, c byte) []byte {
	switch {
	case w.hex:
		w.digits[w.n] = c
		if w.n++; w.n < len(w.digits) {
			return out
		}
		r := rune(utf8.RuneError)
		if n, err := strconv.ParseUint(string(w.digits[:]), 16, 16); err == nil {
			r = rune(n)
		}
		w.hex, w.n = false, 0
		if w.high != 0 {
			r, w.high = utf16.DecodeRune(w.high, r), 0
		} else if utf16.IsSurrogate(r) {
			w.high = r
			return out
		}
		return utf8.AppendRune(out, r)
	case w.escaped:
		w.escaped = false
		if c == 'u' {
			w.hex = true
			return out
		}
		return append(out, '\\', c)
	case w.quoted && c == '\\':
		w.escaped = true
		return out
	case c == '"':
		w.quoted = !w.quoted
	case !w.quoted && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
		return out
	}
	return append(out, c)
}
