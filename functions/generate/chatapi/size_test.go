package chatapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// seeing lets callers of the feature open send images, but for anonymous ones.
func seeing(yaml string) string {
	return strings.NewReplacer("id: test-model,", "id: test-model, image_tokens: {low: 85, high: 1445},",
		"[system, response_format]", "[system, response_format, images]").Replace(yaml)
}

// A body may have 4 MiB for those and there where it may hold images, and else 1 MiB.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	g := newRig(t, seeing)
	user := g.token("123", "")
	padded := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	docqa := strings.Replace(with(""), "open", "docqa", 1)
	for _, tc := range []struct {
		name, token, body string
		code              openai.Code // "": it is answered
		most              string
	}{
		{"4 MiB", user, padded(with(""), 4<<20), "", ""},
		{"more", user, padded(with(""), 4<<20+1), openai.BodyTooLarge, "4194304"},
		{"more of no JSON", user, strings.Repeat("x", 10_000_000), openai.BodyTooLarge, "4194304"},
		{"1 MiB for text", user, padded(docqa, 1<<20), "", ""},
		{"more for text", user, padded(docqa, 1<<20+1), openai.BodyTooLarge, "1048576"},
		{"4 MiB for text", user, padded(docqa, 4<<20), openai.BodyTooLarge, "1048576"},
		{"of nobody", "Anonymous", padded(with(""), 4<<20), openai.InvalidToken, ""},
		{"of a tier without images", "", padded(with(""), 1<<20+1), openai.BodyTooLarge, "1048576"},
		{"of a tier without images, and no JSON", "", strings.Repeat("x", 1<<20+1), openai.BodyTooLarge, "1048576"},
	} {
		a := g.chat(tc.token, tc.body)
		if tc.code == "" {
			check.Equal(t, a.status, http.StatusOK, "%s: %.300s", tc.name, a.body)
			continue
		}
		g.refused(t, a, tc.code, "")
		check.That(t, strings.Contains(g.wireError(a).Message, tc.most), "%s: %s", tc.name, a.body)
	}
}
