package admin

import (
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

type shownFuse struct {
	State string
	Until *int64
	SetBy *string `json:"set_by"`
}

func TestFuse(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var f shownFuse
	g.read(g.do("GET", "/admin/fuse", ""), &f)
	check.That(t, f.State == "closed" && f.Until == nil && f.SetBy == nil, "at first %+v", f)
	in := func(d time.Duration) int64 { return noon.Add(d).Unix() }
	for _, test := range []struct {
		body, state string
		until       int64 // 0: null
	}{
		{`{"state":"challenge","for":"1h30m","reason":"a script"}`, "challenge", in(90 * time.Minute)},
		{`{"state":"anonymous_off","until":` + strconv.FormatInt(in(time.Hour), 10) + `}`, "anonymous_off", in(time.Hour)},
		{`{"state":"open","until":"2026-11-30T14:00:00+01:00"}`, "open", in(time.Hour)},
		{`{"state":"open","until":null,"set_by":"arn:aws:iam::123456789012:user/somebody-else"}`, "open", 0},
		{`{"state":"closed"}`, "closed", 0},
	} {
		for _, a := range []answer{g.do("PUT", "/admin/fuse", test.body), g.do("GET", "/admin/fuse", "")} {
			var f shownFuse
			g.read(a, &f)
			until := int64(0)
			if f.Until != nil {
				until = *f.Until
			}
			check.That(t, f.State == test.state && until == test.until && f.SetBy != nil && *f.SetBy == support, "%s: %s", test.body, a.body)
		}
		// generate reads the same.
		s, err := fuse.NewReader(g.db, g.table, g.Now).Begin(t.Context())()
		check.That(t, err == nil && string(s.State) == test.state, "%s: generate reads %+v, %v", test.body, s, err)
	}
	audit := g.items("audit#")
	check.Must(t, len(audit) == 5, "%d audit items", len(audit))
	found := false
	for _, item := range audit {
		found = found || item["what"].(*types.AttributeValueMemberS).Value == "set challenge until 2026-11-30T13:30:00Z" &&
			item["why"].(*types.AttributeValueMemberS).Value == "a script" && item["who"].(*types.AttributeValueMemberS).Value == support
	}
	check.That(t, found, "audit %v", audit)
	changes := g.logged("fuse set")
	check.That(t, len(changes) == 5 && changes[0]["arn"] == support, "log %v", changes)
}

func TestFuseEnds(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.read(g.do("PUT", "/admin/fuse", `{"state":"open","for":"1h"}`), &shownFuse{})
	g.Advance(time.Hour)
	var f shownFuse
	g.read(g.do("GET", "/admin/fuse", ""), &f)
	check.That(t, f.State == "closed" && f.Until == nil, "%+v", f)
}

func TestFuseRefuses(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for body, param := range map[string]string{
		`{}`:               "state",
		`{"state":"OPEN"}`: "state",
		`{"state":1}`:      "state",
		`{"state":"open","for":"1h","until":1796050000}`: "for",
		`{"state":"open","for":"soon"}`:                  "for",
		`{"state":"open","for":"-1h"}`:                   "for",
		`{"state":"open","for":"0s"}`:                    "for",
		`{"state":"open","for":"9000h"}`:                 "for",
		`{"state":"open","for":3600}`:                    "for",
		`{"state":"open","until":1796040000}`:            "until",
		`{"state":"open","until":1e400}`:                 "until",
		`{"state":"open","until":9223372036854775807}`:   "until",
		`{"state":"open","until":"tomorrow"}`:            "until",
		`{"state":"open","reason":"\u0000"}`:             "reason",
	} {
		g.refused(g.do("PUT", "/admin/fuse", body), 400, "invalid_value", param)
		g.Advance(time.Second)
	}
	g.refused(g.do("PUT", "/admin/fuse", `{"state":"open","forever":true}`), 400, "unsupported_parameter", "forever")
	check.Equal(t, len(g.items("fuse"))+len(g.items("audit#")), 0, "items were made")
}
