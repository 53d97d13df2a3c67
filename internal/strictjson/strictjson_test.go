package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestObject(t *testing.T) {
	for _, tc := range []struct{ raw, want string }{
		{`{"b":1,"a":{"x":1,"x":2},"B":[null]}`, `b=1 a={"x":1,"x":2} B=[null]`},
		{` {} `, ``},
		{`{"a":1,"a":2}`, `the name "a" stands twice`},
		{"{\"a\":1,\"\\u0061\":2}", `the name "a" stands twice`},
		{`[]`, `not a JSON object`},
		{`"a"`, `not a JSON object`},
		{``, `not a JSON object`},
		{`{"a":1} {"b":2}`, `not valid JSON`},
		{`{}]0`, `not valid JSON`},
		{`{"a":1}}`, `not valid JSON`},
		{`{"a":1`, `not valid JSON`},
		{`{"a":1,}`, `not valid JSON`},
		{`{"a":01}`, `not valid JSON`},
	} {
		members, err := Object([]byte(tc.raw))
		var got []string
		for _, m := range members {
			got = append(got, m.Name+"="+string(m.Value))
		}
		s := strings.Join(got, " ")
		check.That(t, (err != nil || s == tc.want) && (err == nil || strings.Contains(err.Error(), tc.want)), "%s: %s, %v, want %s", tc.raw, s, err, tc.want)
	}
}

// A name that stands twice is found among few members and among many.
func TestObjectOfAnySize(t *testing.T) {
	for n := range 3 * few {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%d":0,`, i)
		}
		members, err := Object([]byte("{" + b.String() + `"x":0}`))
		check.That(t, err == nil && len(members) == n+1, "%d members: %d, %v", n+1, len(members), err)
		for i := range n {
			var twice *DuplicateError
			if _, err := Object(fmt.Appendf(nil, `{%s"%d":1}`, b.String(), i)); !errors.As(err, &twice) || twice.Name != fmt.Sprint(i) {
				t.Errorf("%d twice among %d: %v", i, n, err)
			}
		}
	}
}

func TestUnique(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":{"a":1},"b":[{"a":1},{"a":2}],"c":"a"}`: "",
		`[1,"a","a"]`:                    "",
		`"a"`:                            "",
		`{"a":[{"b":1,"c":{},"b":2}]}`:   "b",
		`{"a":{"x":1},"a":2}`:            "a",
		`{"p":{"q":[[{"r":1,"r":1}]]}}`:  "r",
		`{"a":[],"b":{},"c":[{}],"b":0}`: "b",
	} {
		err := Unique([]byte(raw))
		var twice *DuplicateError
		got := ""
		check.That(t, (!errors.As(err, &twice) || twice.Name == want) && (err != nil || want == got), "%s: %v, want %q", raw, err, want)
	}
	check.That(t, Unique([]byte(`{"a":1}{`)) != nil && Unique(nil) != nil, "what is not one value is accepted")
}

// What is split is what encoding/json finds there, and what is not JSON does no harm.
func FuzzUnique(f *testing.F) {
	for _, s := range []string{`{"a":{"b":[1,{"c":null}]}}`, `{"a":1,"a":2}`, ` [ 1 , "]," , {"}":"\\\"]"} ] `, `["\\\\","\ud800x",[],{}, -1.5e3 ,true]`, `"\\\\\""`, `{"a`, `[1 2]`, "\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		check.That(t, Unique(raw) != nil || json.Valid(raw), "accepted what is not JSON")
		members, err := Object(raw)
		check.That(t, err != nil || json.Valid(raw), "split what is not JSON")
		list, listErr := List(raw)
		text, isText := String(raw)
		if _, err := Members(raw); !json.Valid(raw) || errors.As(err, new(*DuplicateError)) {
			return
		}
		var object map[string]json.RawMessage
		var wantList []json.RawMessage
		var wantText *string
		if json.Unmarshal(raw, &object) == nil && object != nil {
			check.That(t, err == nil && len(members) == len(object), "%v %s", err, members)
		}
		for _, m := range members {
			check.That(t, string(m.Value) == string(object[m.Name]) || !utf8.Valid(raw), "%s: %s, want %s", m.Name, m.Value, object[m.Name])
		}
		if json.Unmarshal(raw, &wantList) == nil && wantList != nil {
			check.That(t, listErr == nil && slices.EqualFunc(list, wantList, func(a, b json.RawMessage) bool { return string(a) == string(b) }), "%v %s", listErr, list)
		}
		trimmed := bytes.TrimSpace(raw)
		if len(trimmed) == len(raw) && json.Unmarshal(raw, &wantText) == nil && wantText != nil {
			check.That(t, isText && text == *wantText, "%q, want %q", text, *wantText)
		}
	})
}
