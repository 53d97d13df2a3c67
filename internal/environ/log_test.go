package environ

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// No text makes a line long, in a group or under a logger's own attributes neither; what
// is short stays as it is.
func TestLogIsClipped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 10_000)
	var b bytes.Buffer
	l := NewLog(&b).With("caller", long)
	l.WithGroup("g").Error(long, "text", "x"+long, "error", errors.New(long), "n", 7, "short", "as it is", "cause", errors.New("brief"))
	check.That(t, b.Len() <= 4*maxLogged+500, "%d bytes", b.Len())
	check.That(t, utf8.Valid(b.Bytes()), "a character was cut in two")
	var line struct {
		Msg, Caller string
		G           struct {
			Text, Error, Short, Cause string
			N                         int
		}
	}
	check.OK(t, json.Unmarshal(b.Bytes(), &line))
	for _, s := range []string{line.Msg, line.Caller, line.G.Text, line.G.Error} {
		check.That(t, strings.HasSuffix(s, "ä…") && len(s) <= maxLogged+len("…") && len(s) >= maxLogged-4, "%d bytes: %q", len(s), s)
	}
	check.That(t, line.G.N == 7 && line.G.Short == "as it is" && line.G.Cause == "brief", "%+v", line.G)
}

// Why a function does not start is said to the end, and a stack far enough.
func TestLogOfReasons(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	NewLog(&b).Error("m", "error", whole(strings.Repeat("r", 20_000)), "stack", strings.Repeat("s", 20_000))
	got := b.String()
	check.That(t, strings.Count(got, "r") >= 20_000 && strings.Count(got, "s") >= maxStack && strings.Count(got, "s") <= maxStack+10, "%d bytes", len(got))
}
