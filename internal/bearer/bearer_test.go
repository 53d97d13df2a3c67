package bearer_test

import (
	"net/http"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/bearer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestRing(t *testing.T) {
	t.Parallel()
	r := bearer.New[int]("key", 8)
	for _, tc := range []struct {
		name   string
		holder int
		secret string
		err    string // "": it is added
	}{
		{"ann", 1, "old-secret", ""}, {"ann", 1, "new-secret", ""}, {"ann", 1, "new-secret", ""}, {"bob", 2, "bobs-secret", ""},
		{"eve", 3, "new-secret", "its secret is also that of ann"},
		{"eve", 3, "1234567", "a key must have at least 8 characters, all of them visible ASCII, without spaces and line ends"},
		{"eve", 3, "with a space", "a key must have at least 8 characters, all of them visible ASCII, without spaces and line ends"},
		{"eve", 3, "line-end\n", "a key must have at least 8 characters, all of them visible ASCII, without spaces and line ends"},
	} {
		got := ""
		if err := r.Add(tc.name, tc.holder, tc.secret); err != nil {
			got = err.Error()
		}
		check.Equal(t, got, tc.err, "adding %q", tc.secret)
	}
	for _, tc := range []struct {
		values []string
		holder int // 0: nobody
	}{
		{[]string{"Bearer old-secret"}, 1}, {[]string{"Bearer new-secret"}, 1}, {[]string{" bearer  bobs-secret\t"}, 2},
		{nil, 0}, {[]string{"Bearer "}, 0}, {[]string{"old-secret"}, 0}, {[]string{"Basic old-secret"}, 0}, {[]string{"Bearer old-secre"}, 0},
		{[]string{"Bearer old-secret", "Bearer old-secret"}, 0}, {[]string{"Bearer 1234567"}, 0},
	} {
		holder, found := r.Of(http.Header{"Authorization": tc.values})
		check.That(t, holder == tc.holder && found == (tc.holder != 0), "%q: %d, %t", tc.values, holder, found)
	}
	_, found := (*bearer.Ring[int])(nil).Of(http.Header{"Authorization": {"Bearer old-secret"}})
	check.That(t, !found, "a nil ring has a secret")
}
