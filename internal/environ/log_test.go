package environ

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// No text makes a line long, in a group or under a logger's own attributes neither; what
// is short stays as it is.
func TestLogIsClipped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 10_000)
	var b bytes.Buffer
	l := NewLog(&b).With("caller", long)
	l.WithGroup("g").Error(long, "text", "x"+long, "error", errors.New(long), "n", 7, "short", "as it is", "cause", errors.New("brief"))
	if b.Len() > 4*maxLogged+500 {
		t.Errorf("%d bytes", b.Len())
	}
	if !utf8.Valid(b.Bytes()) {
		t.Error("a character was cut in two")
	}
	var line struct {
		Msg, Caller string
		G           struct {
			Text, Error, Short, Cause string
			N                         int
		}
	}
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{line.Msg, line.Caller, line.G.Text, line.G.Error} {
		if !strings.HasSuffix(s, "ä…") || len(s) > maxLogged+len("…") || len(s) < maxLogged-4 {
			t.Errorf("%d bytes: %q", len(s), s)
		}
	}
	if line.G.N != 7 || line.G.Short != "as it is" || line.G.Cause != "brief" {
		t.Errorf("%+v", line.G)
	}
}

// Why a function does not start is said to the end, and a stack far enough.
func TestLogOfReasons(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	NewLog(&b).Error("m", "error", whole(strings.Repeat("r", 20_000)), "stack", strings.Repeat("s", 20_000))
	if got := b.String(); strings.Count(got, "r") < 20_000 || strings.Count(got, "s") < maxStack || strings.Count(got, "s") > maxStack+10 {
		t.Errorf("%d bytes", len(got))
	}
}
