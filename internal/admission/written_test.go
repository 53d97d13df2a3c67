package admission

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What a model has at least written does not depend on where its answer is cut into pieces,
// says the same as the answer, is never longer, and what fits does fit.
func FuzzWritten(f *testing.F) {
	for _, text := range []string{`{"a" : "b c", "d": [1, 2]}`, "{\n\t\"é\":\"\\u00e9\\ud83d\\ude00\\n\"}", `"\ud83d"`, `"\uZZZZ`, `"\\" x`, `"\ud83d\ud83d\ude00"`, `{"a":"\`, ``, "\"\xff\""} {
		f.Add(text, 3, 5)
	}
	f.Fuzz(func(t *testing.T, text string, at, most int) {
		if at < 0 || at > len(text) || most < 0 {
			return
		}
		var whole, cut written
		got := whole.add(text)
		check.Equal(t, cut.add(text[:at])+cut.add(text[at:]), got, "%q, cut at %d", text, at)
		check.That(t, len(got) <= len(text) || !json.Valid([]byte(text)), "%q was written as %q", text, got)
		var w written
		fits := w.fits(text, most)
		check.That(t, strings.HasPrefix(text, fits) && len(w.add(fits)) <= most, "%q has at most %d bytes written", fits, most)
		var said, says any
		if json.Unmarshal([]byte(text), &said) == nil && utf8.ValidString(text) && !strings.Contains(got, "\uFFFD") && !controls(got) {
			check.That(t, json.Unmarshal([]byte(got), &says) == nil, "%q was written as %q", text, got)
		}
	})
}

// controls: an escaped quote, backslash or control character is written as itself.
func controls(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) || strings.Count(s, `"`)%2 == 1 || strings.Contains(s, `\`)
}
