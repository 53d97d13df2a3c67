package strictjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
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
		{`{"a":1} {"b":2}`, `something follows the object`},
		{`{}]0`, `something follows the object`},
		{`{"a":1}}`, `something follows the object`},
		{`{"a":1`, `EOF`},
		{`{"a":1,}`, `invalid character '}' looking for beginning of object key string`},
		{`{"a":01}`, `invalid character '1' after object key:value pair`},
	} {
		members, err := Object([]byte(tc.raw))
		var got []string
		for _, m := range members {
			got = append(got, m.Name+"="+string(m.Value))
		}
		if s := strings.Join(got, " "); err == nil && s != tc.want || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s, %v, want %s", tc.raw, s, err, tc.want)
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
		if got := ""; errors.As(err, &twice) && twice.Name != want || err == nil && want != got {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	if Unique([]byte(`{"a":1}{`)) == nil || Unique(nil) == nil {
		t.Error("what is not one value is accepted")
	}
}

func FuzzUnique(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,{"c":null}]}}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if Unique(raw) == nil && !json.Valid(raw) {
			t.Error("accepted what is not JSON")
		}
		if members, err := Object(raw); err == nil {
			if !json.Valid(raw) {
				t.Error("split what is not JSON")
			}
			for _, m := range members {
				if !json.Valid(m.Value) {
					t.Error("a value is not JSON")
				}
			}
		}
	})
}
