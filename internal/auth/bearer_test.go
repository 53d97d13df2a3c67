package auth_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/testkit/check"
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			token, anonymous, err := auth.Bearer(tt.header)
			check.That(t, token == tt.token && anonymous == tt.anonymous && (err == nil) == tt.ok, "got %q, %v, %v", token, anonymous, err)
		})
	}
}

func TestBearerRefuses(t *testing.T) {
	t.Parallel()
	const jwt = "eyJh.e30.c2ln_-A"
	for reason, headers := range map[auth.Reason][][]string{
		auth.SeveralHeaders: {{"Bearer " + jwt, "Bearer " + jwt}, {"", ""}, {"Bearer anonymous", "Bearer " + jwt}},
		auth.NotBearer:      {{"Basic dXNlcjpwYXNz"}, {jwt}, {"anonymous"}, {"Bearer" + jwt}, {"Bearer\t" + jwt}},
		auth.ProviderKey: {{"Bearer sk-proj-0123"}, {"bearer  sk-ant-api03-0/1+2="}, {"Bearer AIzaSyA-b_c"}, {"Bearer gsk_0123"}, {"sk-0123"}, {"Bearer xai-0"},
			{"Bearer hf_0123"}, {"Bearer sk-a.b.c"}},
		auth.Malformed: {{"Bearer " + jwt + "\n"}, {`Bearer "` + jwt + `"`}, {"Bearer \t" + jwt}},
		auth.Opaque: {{"Bearer " + jwt + ", Bearer " + jwt}, {"Bearer " + jwt + " " + jwt}, {"Bearer anonymous x"}, {"Bearer \x00"}, {"Bearer abc="}, {"Bearer é"},
			{"Bearer 0/1+2"}},
	} {
		for _, header := range headers {
			token, anonymous, err := auth.Bearer(header)
			check.That(t, token == "" && !anonymous && auth.ReasonOf(err) == reason && errors.Is(err, auth.ErrInvalid),
				"%q: %q, %v, %v, want %q", header, token, anonymous, err, reason)
		}
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
			check.Must(t, token == "" && !anonymous && errors.Is(err, auth.ErrInvalid), "got %q, %v, %v", token, anonymous, err)
		case anonymous == (token != ""):
			t.Fatalf("neither or both: %q, %v", token, anonymous)
		case !strings.Contains(header, token) || strings.ContainsAny(token, " ,\t\r\n"):
			t.Fatalf("got token %q", token)
		}
	})
}
