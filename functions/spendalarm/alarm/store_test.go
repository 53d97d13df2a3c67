package alarm

import (
	"context"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/verdict"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	ctx := context.Background()
	s := state{seen: noon.Add(7 * time.Microsecond), since: noon, level: 2, told: noon.Add(time.Minute), claimed: noon.Add(time.Hour), past: []int64{494_000}, verdict: verdict.Verdict{Threshold: 7, From: "fixed", Peak: 3}}
	for range 2 {
		if ok, err := g.handler.writeState(ctx, &s); !ok || err != nil {
			t.Fatal(ok, err)
		}
		got, err := g.handler.readState(ctx)
		check.OK(t, err)
		if diff := cmp.Diff(s, got, cmp.AllowUnexported(state{})); diff != "" {
			t.Error(diff)
		}
		s = state{version: s.version}
	}
	// Whoever comes late changes nothing.
	late := state{version: 1, level: 4}
	if ok, err := g.handler.writeState(ctx, &late); ok || err != nil {
		t.Errorf("a late write: %t, %v", ok, err)
	}
	late = state{level: 4}
	if ok, err := g.handler.writeState(ctx, &late); ok || err != nil {
		t.Errorf("a second first write: %t, %v", ok, err)
	}
}

func TestNonsenseStateFailsLoudly(t *testing.T) {
	t.Parallel()
	for name, it := range map[string]dynamo.Item{
		"text":     {"since": dynamo.Text("noon")},
		"fraction": {"level": &types.AttributeValueMemberN{Value: "1.5"}},
		"hours":    {"hours": &types.AttributeValueMemberNS{Value: []string{"1.5"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, dollars8)
			it["pk"] = dynamo.Text("alarm")
			if _, err := g.db(nil).PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &g.table, Item: it}); err != nil {
				t.Fatal(err)
			}
			if _, err := g.handler.Run(context.Background()); err == nil {
				t.Error("no error")
			}
		})
	}
}

// An item of the version before, which did not remember up to when it had seen.
func TestStateOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	g := newRig(t, withFuse)
	it := dynamo.Item{"pk": dynamo.Text("alarm"), "version": dynamo.Number(3), "writer": dynamo.Text("w"), "level": dynamo.Number(1),
		"since": dynamo.Number(noon.Add(-10 * time.Minute).Unix()), "told": dynamo.Number(noon.Add(-10 * time.Minute).Unix())}
	if _, err := g.db(nil).PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &g.table, Item: it}); err != nil {
		t.Fatal(err)
	}
	g.spend(call{cents: 900})
	r := g.tick()
	check.That(t, !r.Outdated && r.State == "alarm" && r.Paged == "" && r.Fuse == "challenge", "%+v", r)
	g.at(65)
	g.tick()
	g.wantPages("cleared")
}

// A state that is read would be written with the same meaning, and decides without a panic,
// whatever its numbers are.
func FuzzState(f *testing.F) {
	f.Add(int64(3), noon.UnixMicro(), noon.Unix(), noon.Unix(), int64(0), int64(2), int64(494_000), int64(7), noon.Unix(), int64(8e12))
	f.Add(int64(-1), int64(math.MinInt64), int64(math.MaxInt64), int64(math.MinInt64), int64(math.MaxInt64), int64(-4), int64(math.MinInt64), int64(-1), int64(0), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, version, seen, since, told, claimed, level, past, threshold, now, spend int64) {
		if now < 0 || now > 1<<40 || spend < 0 || version == math.MaxInt64 {
			return
		}
		it := dynamo.Item{"version": dynamo.Number(version), "seen": dynamo.Number(seen), "since": dynamo.Number(since), "told": dynamo.Number(told), "claimed": dynamo.Number(claimed),
			"level": dynamo.Number(level), "hours": &types.AttributeValueMemberNS{Value: []string{strconv.FormatInt(past, 10)}}, "threshold": dynamo.Number(threshold)}
		s, err := decode(it)
		check.OK(t, err)
		if again, err := decode(encode(s, "writer")); level >= 0 {
			check.OK(t, err)
			s.version++
			check.Diff(t, cmp.Diff(s, again, cmp.AllowUnexported(state{})), "written and read again")
		}
		at := time.Unix(now, 0)
		e := s.due(at, price.Pico(spend), price.Pico(max(1, threshold)), time.Hour)
		check.That(t, len(s.hoursInAlarm(at)) <= 723, "%d hours of incidents", len(s.hoursInAlarm(at)))
		check.That(t, e != cleared || s.after(e, at, price.Pico(spend), price.Pico(max(1, threshold))).since.IsZero(), "an incident outlasts its end")
		check.That(t, e != none || s.since.IsZero() == (spend <= max(1, threshold)) || !s.since.IsZero(), "spending of %d beyond %d goes untold", spend, threshold)
	})
}
