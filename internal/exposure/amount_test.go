package exposure

import (
	"encoding/json"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// An amount of a file is none below zero, and is written as it is read.
func FuzzAmount(f *testing.F) {
	for _, seed := range []string{`"1.5"`, `"0.000000000001"`, `"9223372.036854775807"`, `"9223372.036854775808"`, `null`, `"-1"`, `".5"`, `"5."`, `"1e3"`, `1.5`, `""`, "`1`", `'1'`, `"\u0031"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a Amount
		if json.Unmarshal([]byte(text), &a) != nil {
			check.Equal(t, a, 0, "a refused amount")
			return
		}
		written, err := json.Marshal(a)
		check.OK(t, err)
		var again Amount
		check.OK(t, json.Unmarshal(written, &again))
		check.That(t, a >= 0 && again == a, "%s is %d, written as %s", text, a, written)
	})
}
