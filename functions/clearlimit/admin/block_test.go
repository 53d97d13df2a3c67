package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

const aNetwork, aPass = "net#aaaaaaaabbbbbbbb", "pass#AAAAAAAAAAAAAAAAAAAAAA"

func TestBlock(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("ann"), "user", "", map[string]int64{"tokens": 1})
	check.OK(t, g.emails.Learn(t.Context(), "ann@example.com", "ann"))
	inAnHour := fmt.Sprintf(`{"until":%d,"set_by":"%s"}`, noon.Add(time.Hour).Unix(), support)
	for _, test := range []struct{ route, body, key, want string }{
		{"unblock", `{"user":"ann"}`, "user#ann", `{"identity":{"kind":"user","id":"ann","tier":null},"known":true,"was_blocked":false,"blocked":null}`},
		{"block", `{"email":"ann@example.com","for":"1h","reason":"a leaked token"}`, "user#ann", `{"identity":{"kind":"user","id":"ann","tier":null},"known":true,"was_blocked":false,"blocked":` + inAnHour + `}`},
		{"block", `{"identity":"user#ann","for":"1d"}`, "user#ann", fmt.Sprintf(`{"identity":{"kind":"user","id":"ann","tier":null},"known":true,"was_blocked":true,"blocked":{"until":%d,"set_by":"%s"}}`, noon.Add(24*time.Hour).Unix(), support)},
		{"block", `{"user":"nobody-yet","for":"1h"}`, "user#nobody-yet", `{"identity":{"kind":"user","id":"nobody-yet","tier":null},"known":false,"was_blocked":false,"blocked":` + inAnHour + `}`},
		{"block", `{"identity":"` + aNetwork + `","until":"2026-11-30T13:00:00Z"}`, aNetwork, `{"identity":{"kind":"anonymous","id":"` + aNetwork + `","tier":"anonymous"},"known":false,"was_blocked":false,"blocked":` + inAnHour + `}`},
		{"block", `{"identity":"` + aPass + `","for":"1h"}`, aPass, `{"identity":{"kind":"anonymous","id":"` + aPass + `","tier":"anonymous"},"known":false,"was_blocked":false,"blocked":` + inAnHour + `}`},
		{"unblock", `{"user":"ann","reason":"it was a test"}`, "user#ann", `{"identity":{"kind":"user","id":"ann","tier":null},"known":true,"was_blocked":true,"blocked":null}`},
	} {
		a := g.do("POST", "/admin/"+test.route, test.body)
		check.Equal(t, strings.TrimSpace(a.body), test.want, "%s %s", test.route, test.body)
		// generate reads the same.
		s, err := fuse.NewReader(g.db, g.table, g.Now).Begin(t.Context())()
		check.OK(t, err)
		_, blocked := s.Blocks.Of(g.Now(), test.key)
		check.Equal(t, blocked, !strings.HasSuffix(test.want, "null}"), "%s: blocked for generate", test.body)
		if test.key == "user#ann" {
			check.Equal(t, strings.Contains(g.do("GET", "/admin/limits?user=ann", "").body, `"blocked":{"until":`), blocked, "%s: shown in the limits", test.body)
		}
	}
	check.That(t, strings.Contains(g.do("GET", "/admin/limits?user=nobody-yet", "").body, `"blocked":{"until":`), "the block of somebody who never called is not shown")
	said := map[string]bool{}
	for _, item := range g.items("audit#") {
		said[dynamo.TextOf(item, "who")+": "+dynamo.TextOf(item, "what")+" of "+dynamo.TextOf(item, "whom")+" for "+dynamo.TextOf(item, "why")] = true
	}
	check.That(t, len(said) == 6 && said[support+": block until 2026-11-30T13:00:00Z of user#ann for a leaked token"] && said[support+": unblock of user#ann for it was a test"], "audit %v", said)
	check.Equal(t, len(g.logged("block changed")), 6, "lines in the log")
	check.That(t, !strings.Contains(g.log.String(), "example.com"), "an address is in the log")
}

func TestBlockRefuses(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for body, param := range map[string]string{
		`{"for":"1h"}`: "user", `{"user":"a"}`: "for", `{"user":"a","for":"0s"}`: "for", `{"user":"a","for":"367d"}`: "for", `{"user":"a","for":"1h","until":1}`: "for",
		`{"user":"a","until":1}`: "until", `{"user":"a b","for":"1h"}`: "user", `{"identity":"pool#all","for":"1h"}`: "identity", `{"identity":"fuse","for":"1h"}`: "identity",
		`{"identity":"net#typo","for":"1h"}`: "identity", `{"user":"a","for":"1h","reason":1}`: "reason", `{"user":"a","email":"b@example.com","for":"1h"}`: "email",
	} {
		g.refused(g.do("POST", "/admin/block", body), 400, "invalid_value", param)
		g.Advance(time.Second)
	}
	g.refused(g.do("POST", "/admin/block", `{"email":"nobody@example.com","for":"1h"}`), 404, "identity_not_found", "email")
	g.refused(g.do("POST", "/admin/unblock", `{"user":"a","for":"1h"}`), 400, "unsupported_parameter", "for")
	check.Equal(t, len(g.items("fuse"))+len(g.items("audit#")), 0, "items that were made")

	w := fuse.NewWriter(g.db, g.table, g.Now)
	for i := range fuse.MaxBlocks {
		check.OK(t, w.Block(t.Context(), fmt.Sprintf("user#%d", i), fuse.Block{Until: g.Now().Add(time.Hour), SetBy: support}))
	}
	g.refused(g.do("POST", "/admin/block", `{"user":"one-more","for":"1h"}`), 409, "too_many_blocks", "")
	var one blocked
	g.read(g.do("POST", "/admin/block", `{"user":"7","for":"2h"}`), &one) // is on the list
	g.net.Plan = faults.Always(faults.Throttled)
	g.handler.Buckets = g.shortTempered()
	g.refused(g.do("POST", "/admin/block", `{"user":"a","for":"1h"}`), 503, "store_unavailable", "")
}
