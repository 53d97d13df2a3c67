package alarm

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
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
