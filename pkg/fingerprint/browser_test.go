package fingerprint_test

import (
	"net/http"
	"testing"

	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestLacksBrowserHeaders(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		header http.Header
		want   bool
	}{
		{"Chrome", http.Header{"User-Agent": {"Mozilla/5.0 Chrome/142.0"}, "Accept-Language": {"de-DE,de;q=0.9"}, "Sec-Fetch-Mode": {"cors"}}, false},
		{"page of our own", http.Header{"User-Agent": {"Mozilla/5.0"}, "Accept-Language": {"en"}, "Sec-Fetch-Mode": {"same-origin"}}, false},
		{"library that replaces the user agent in Firefox", http.Header{"User-Agent": {"OpenAI/JS 7.0.0"}, "Accept-Language": {"en"}, "Sec-Fetch-Mode": {"cors"}}, false},
		{"Safari before 16.4", http.Header{"User-Agent": {"Mozilla/5.0 Version/15.6 Safari"}, "Accept-Language": {"en"}}, true},
		{"Node's fetch", http.Header{"User-Agent": {"node"}, "Accept-Language": {"*"}, "Sec-Fetch-Mode": {"cors"}}, false},
		{"curl", http.Header{"User-Agent": {"curl/8.5"}, "Accept": {"*/*"}}, true},
		{"no language", http.Header{"User-Agent": {"Mozilla/5.0"}, "Sec-Fetch-Mode": {"cors"}}, true},
		{"no user agent", http.Header{"Accept-Language": {"en"}, "Sec-Fetch-Mode": {"cors"}}, true},
		{"empty values", http.Header{"User-Agent": {""}, "Accept-Language": {""}, "Sec-Fetch-Mode": {""}}, true},
		{"nothing", http.Header{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fingerprint.LacksBrowserHeaders(&http.Request{Header: tt.header}); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// What gives advice to servers must not give it to browsers.
func TestLooksLikeServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header http.Header
		want   bool
	}{
		"Chrome":       {http.Header{"User-Agent": {"Mozilla/5.0 Chrome/142.0"}, "Accept-Language": {"de-DE,de;q=0.9"}, "Sec-Fetch-Mode": {"cors"}}, false},
		"Node's fetch": {http.Header{"User-Agent": {"node"}, "Accept-Language": {"*"}, "Sec-Fetch-Mode": {"cors"}}, true},
		"Python":       {http.Header{"User-Agent": {"OpenAI/Python 3.1"}, "Accept": {"application/json"}}, true},
		"nothing":      {http.Header{}, true},
	} {
		check.Equal(t, fingerprint.LooksLikeServer(&http.Request{Header: test.header}), test.want, "%s", name)
	}
}
