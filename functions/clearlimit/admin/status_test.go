package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/verdict"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func withAlarm(yaml string) string {
	return withPools(strings.Replace(yaml, "max_in_flight: 4, challenge_at: 0.5,", "max_in_flight: 4, challenge_at: 0.5, pool: anonymous,", 1)) + "alarm: {threshold_usd: \"8.00\"}\n"
}

// spent records a call of $1 by an identity of a tier.
func (g *rig) spent(identity, tier string, ago time.Duration) {
	g.t.Helper()
	l, err := ledger.New(g.db, ledger.Options{Table: g.spends, Now: g.Now})
	check.OK(g.t, err)
	check.OK(g.t, l.Record(g.t.Context(), ledger.Event{Reservation: fmt.Sprint(identity, ago), Time: g.Now().Add(-ago), Identity: identity, Tier: tier,
		Feature: "docqa", Model: "small", Cost: price.Dollar, Outcome: ledger.Completed}))
}

func (g *rig) wantStatus(want string) {
	g.t.Helper()
	var got, wanted any
	g.read(g.do("GET", "/admin/status", ""), &got)
	check.OK(g.t, json.Unmarshal([]byte(want), &wanted))
	check.Diff(g.t, cmp.Diff(wanted, got), "the status")
}

func TestStatus(t *testing.T) {
	t.Parallel()
	g := newRig(t, withAlarm)
	g.denials = func() (map[string]int64, error) { return map[string]int64{}, nil }
	const pools = `{"name":"all","ceiling_usd":"4","period_seconds":3600,"at_once_usd":"1","spent_usd":"0","committed_usd":"0","free_usd":"1","debt_usd":"0"},
		{"name":"anonymous","ceiling_usd":"0.04","period_seconds":3600,"at_once_usd":"0.01","spent_usd":"0","committed_usd":"0","free_usd":"0.01","debt_usd":"0"}`
	g.wantStatus(`{"time":1796040000,"spend":{"usd":"0","calls":0,"top":[]},
		"alarm":{"state":"normal","since":null,"threshold_usd":null,"threshold_from":null,"normal_peak_usd":null,"seen":null},
		"fuse":{"state":"closed","until":null,"set_by":null},"blocks":[],"denials":{},"problems":[],"pools":[` + pools + `]}`)

	g.denials = func() (map[string]int64, error) { return map[string]int64{"tokens": 7, "identity_blocked": 2}, nil }
	g.spent("user#ann", "user", time.Minute)
	g.spent("user#ann", "user", 2*time.Minute)
	g.spent("net#x", "anonymous", 3*time.Minute)
	g.spent("user#old", "user", 61*time.Minute)
	g.overspend(dollar * 3 / 2)
	item := dynamo.Key(keys.Alarm)
	item["since"], item["seen"] = dynamo.Seconds(noon.Add(-time.Minute)), dynamo.Number(noon.Add(-time.Minute).UnixMicro())
	verdict.Verdict{Threshold: 8 * price.Dollar, From: "fixed", Peak: 2 * price.Dollar}.Put(item)
	_, err := g.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &g.table, Item: item})
	check.OK(t, err)
	g.read(g.do("PUT", "/admin/fuse", `{"state":"challenge","for":"1h","reason":"scripts"}`), &shownFuse{})
	g.read(g.do("POST", "/admin/block", `{"user":"ann","for":"1h"}`), &blocked{})
	g.read(g.do("POST", "/admin/block", `{"user":"bob","for":"1d"}`), &blocked{})
	g.wantStatus(`{"time":1796040000,"spend":{"usd":"3","calls":3,"top":[{"identity":"user#ann","usd":"2","calls":2},{"identity":"net#x","usd":"1","calls":1}]},
		"alarm":{"state":"alarm","since":1796039940,"threshold_usd":"8","threshold_from":"fixed","normal_peak_usd":"2","seen":1796039940},
		"fuse":{"state":"challenge","until":1796043600,"set_by":"` + support + `","reason":"scripts"},
		"blocks":[{"identity":"user#bob","until":1796126400,"set_by":"` + support + `"},{"identity":"user#ann","until":1796043600,"set_by":"` + support + `"}],
		"denials":{"tokens":7,"identity_blocked":2},"problems":[],"pools":[
		{"name":"all","ceiling_usd":"4","period_seconds":3600,"at_once_usd":"1","spent_usd":"3","committed_usd":"1.5","free_usd":"0","debt_usd":"0.5"},
		{"name":"anonymous","ceiling_usd":"0.04","period_seconds":3600,"at_once_usd":"0.01","spent_usd":"1","committed_usd":"0","free_usd":"0.01","debt_usd":"0"}]}`)
}

// What cannot be read leaves the rest as it is.
func TestStatusInParts(t *testing.T) {
	t.Parallel()
	g := newRig(t, withPools)
	g.denials = func() (map[string]int64, error) { return nil, errors.New("AccessDenied") }
	g.net.Plan = func(target string, _ []byte) faults.Fault {
		if strings.HasSuffix(target, ".Query") {
			return faults.Throttled
		}
		return faults.None
	}
	var got statusView
	g.read(g.do("GET", "/admin/status", ""), &got)
	check.That(t, got.Spend == nil && got.Denials == nil && got.Alarm.State == "off" && got.Fuse.State == "closed" && len(got.Pools) == 2 && got.Pools[0].Spent == nil && got.Pools[0].Free == "1" &&
		strings.Join(got.Problems, "; ") == "the number of denials cannot be read: the log of clearlimit says why; what was spent cannot be read: the log of clearlimit says why", "%+v", got)
	check.Equal(t, len(g.logged("a part of the status cannot be read")), 2, "lines in the log")
}
