package auth_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/auth"
)

func TestBearer(t *testing.T) {
	t.Parallel()
	const jwt = "eyJh.e30.c2ln_-A"
	for _, tt := range []struct {
		name      string
		header    []string
		token     string
		anonymous bool
		ok        bool
	}{
		{"none", nil, "", true, true},
		{"empty", []string{""}, "", true, true},
		{"blank", []string{" \t"}, "", true, true},
		{"empty Bearer", []string{"Bearer"}, "", true, true},
		{"empty Bearer and a space", []string{"Bearer  "}, "", true, true},
		{"anonymous", []string{"Bearer anonymous"}, "", true, true},
		{"anonymous, scheme in lower case", []string{"bearer anonymous"}, "", true, true},
		{"token", []string{"Bearer " + jwt}, jwt, false, true},
		{"scheme in upper case", []string{"BEARER " + jwt}, jwt, false, true},
		{"spaces around", []string{"  Bearer   " + jwt + " "}, jwt, false, true},

		{"Anonymous is a token", []string{"Bearer Anonymous"}, "Anonymous", false, true},
		{"two headers", []string{"Bearer " + jwt, "Bearer " + jwt}, "", false, false},
		{"two empty headers", []string{"", ""}, "", false, false},
		{"anonymous, then a token", []string{"Bearer anonymous", "Bearer " + jwt}, "", false, false},
		{"two headers joined", []string{"Bearer " + jwt + ", Bearer " + jwt}, "", false, false},
		{"two tokens", []string{"Bearer " + jwt + " " + jwt}, "", false, false},
		{"anonymous and more", []string{"Bearer anonymous x"}, "", false, false},
		{"Basic", []string{"Basic dXNlcjpwYXNz"}, "", false, false},
		{"token alone", []string{jwt}, "", false, false},
		{"anonymous alone", []string{"anonymous"}, "", false, false},
		{"no space", []string{"Bearer" + jwt}, "", false, false},
		{"tab", []string{"Bearer\t" + jwt}, "", false, false},
		{"tab behind the space", []string{"Bearer \t" + jwt}, "", false, false},
		{"line break", []string{"Bearer " + jwt + "\n"}, "", false, false},
		{"NUL", []string{"Bearer \x00"}, "", false, false},
		{"quotes", []string{`Bearer "` + jwt + `"`}, "", false, false},
		{"padding", []string{"Bearer abc="}, "", false, false},
		{"beyond ASCII", []string{"Bearer é"}, "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token, anonymous, err := auth.Bearer(tt.header)
			if token != tt.token || anonymous != tt.anonymous || (err == nil) != tt.ok {
				t.Errorf("got %q, %v, %v", token, anonymous, err)
			}
			if err != nil && !errors.Is(err, auth.ErrInvalid) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

func FuzzBearer(f *testing.F) {
	for _, seed := range []string{"", "Bearer", "Bearer anonymous", "bearer a.b.c", "Basic x", "Bearer a,b", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token, anonymous, err := auth.Bearer([]string{header})
		switch {
		case err != nil:
			if token != "" || anonymous || !errors.Is(err, auth.ErrInvalid) {
				t.Fatalf("got %q, %v, %v", token, anonymous, err)
			}
		case anonymous == (token != ""):
			t.Fatalf("neither or both: %q, %v", token, anonymous)
		case !strings.Contains(header, token) || strings.ContainsAny(token, " ,\t\r\n"):
			t.Fatalf("got token %q", token)
		}
	})
}
