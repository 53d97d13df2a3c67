package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

type auditPageOf struct {
	Changes []struct {
		N, At                int64
		Who, Whom, What, Why string
	}
	Next *int64
}

// audited are the numbers in a page, and where the next begins (0: nowhere).
func (g *rig) audited(query string) (numbers []int64, next int64) {
	g.t.Helper()
	var page auditPageOf
	g.read(g.do("GET", "/admin/audit"+query, ""), &page)
	for _, c := range page.Changes {
		numbers = append(numbers, c.N)
	}
	if page.Next != nil {
		next = *page.Next
	}
	return numbers, next
}

func TestAuditIsListed(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	numbers, next := g.audited("")
	check.That(t, len(numbers) == 0 && next == 0, "at first %v, %d", numbers, next)
	g.read(g.do("PUT", "/admin/fuse", `{"state":"challenge","reason":"scripts"}`), &shownFuse{})
	g.Advance(time.Minute)
	g.read(g.do("POST", "/admin/block", `{"user":"ann","for":"1h"}`), &blocked{})
	g.Advance(time.Minute)
	g.read(g.do("POST", "/admin/unblock", `{"user":"ann"}`), &blocked{})
	check.Equal(t, strings.TrimSpace(g.do("GET", "/admin/audit?identity=fuse", "").body),
		fmt.Sprintf(`{"changes":[{"n":1,"at":%d,"who":"%s","whom":"fuse","what":"set challenge","why":"scripts"}],"next":null}`, noon.Unix(), support), "the fuse's")
	for query, want := range map[string]string{
		"": "[3 2 1]", "?user=ann": "[3 2]", "?identity=user%23ann": "[3 2]", "?user=bob": "[]", "?before=3": "[2 1]", "?before=99": "[3 2 1]", "?before=1": "[]",
		"?since=2026-11-30T12:01:00Z": "[3 2]", fmt.Sprintf("?since=%d", noon.Add(2*time.Minute).Unix()): "[3]", "?since=2026-11-30T12:03:00Z": "[]",
	} {
		numbers, next := g.audited(strings.ReplaceAll(query, "%23", "#"))
		check.That(t, fmt.Sprint(numbers) == want && next == 0, "%s: %v, %d, want %s", query, numbers, next, want)
		g.Advance(time.Second)
	}
	for query, param := range map[string]string{"?since=soon": "since", "?before=0": "before", "?before=x": "before", "?user=a%20b": "user", "?identity=pool#none": "identity", "?user=a&identity=fuse&user=b": "user"} {
		g.refused(g.do("GET", "/admin/audit"+strings.ReplaceAll(query, "%20", " "), ""), 400, "invalid_value", param)
	}
}

// Pages are bounded, and come to an end: gaps and what has expired do not matter.
func TestAuditHasPages(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := NewAudit(g.db, g.table, g.Now)
	for i := range 130 {
		check.OK(t, a.Record(t.Context(), Change{Who: support, Whom: fmt.Sprintf("user#%d", i%2), What: "clear all"}))
	}
	for _, gone := range []int64{1, 2, 3, 90, 130} {
		_, err := g.db.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &g.table, Key: dynamo.Key(keys.Change(gone))})
		check.OK(t, err)
	}
	seen, query := map[int64]bool{}, ""
	for range 9 {
		numbers, next := g.audited(query)
		check.That(t, len(numbers) <= auditPage, "%d in a page", len(numbers))
		for _, n := range numbers {
			check.That(t, !seen[n], "%d came twice", n)
			seen[n] = true
		}
		if query = fmt.Sprintf("?before=%d", next); next == 0 {
			break
		}
	}
	check.Equal(t, len(seen), 125, "changes in all pages")
	// One who was changed long ago, behind more than is looked at.
	_, err := g.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &g.table, Item: dynamo.Item{"pk": dynamo.Text(keys.Audit), "n": dynamo.Number(100_000)}})
	check.OK(t, err)
	numbers, next := g.audited("?user=0")
	check.That(t, len(numbers) == 0 && next == 0, "after a gap %v, %d", numbers, next)
	g.read(g.do("POST", "/admin/block", `{"user":"ann","for":"1h"}`), &blocked{})
	numbers, _ = g.audited("?user=ann")
	check.Equal(t, fmt.Sprint(numbers), "[100001]", "the newest")
}

// A change is kept once, whatever happens to the first try of each write; one that is
// not kept is not made.
func TestAuditUnderFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []faults.Fault{faults.LostReply, faults.ErrorReply, faults.LostRequest, faults.ServerError} {
		g := newRig(t)
		tries := map[string]int{}
		g.net.Plan = func(target string, body []byte) faults.Fault {
			if key := target; strings.Contains(string(body), `"audit`) {
				if tries[key]++; tries[key] == 1 {
					return fault
				}
			}
			return faults.None
		}
		g.read(g.do("POST", "/admin/block", `{"user":"ann","for":"1h"}`), &blocked{})
		numbers, _ := g.audited("")
		check.That(t, len(numbers) == 1 && len(g.items("audit#")) == 1, "%s: %v", fault, numbers)
	}
}
