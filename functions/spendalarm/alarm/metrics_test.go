package alarm

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/local/inbox"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar})
	g.commit(price.Dollar) // a fifth of what may be spent at once
	g.spend(call{cents: 1225, identity: "user#secret-name"})
	g.spend(call{cents: 75, tier: "renamed"})
	g.tick()
	got := g.inbox.Metrics()
	for i := range got {
		got[i].Time = time.Time{}
		got[i].Value = math.Round(got[i].Value*1000) / 1000
	}
	metric := func(name string, value float64, unit string, dimension ...string) inbox.Metric {
		m := inbox.Metric{Namespace: "tokenfuse", Name: name, Value: value, Unit: unit, Dimensions: map[string]string{}}
		if len(dimension) == 2 {
			m.Dimensions[dimension[0]] = dimension[1]
		}
		return m
	}
	want := []inbox.Metric{
		metric("TrailingHourDollars", 13, "None"),
		metric("TrailingHourDollars", 12.25, "None", "Tier", "anonymous"),
		metric("TrailingHourDollars", 0, "None", "Tier", "user"), // so that an alarm on it has data
		metric("TrailingHourCalls", 2, "Count"),
		metric("AlarmThresholdDollars", 8, "None"),
		metric("AlarmLevel", 1, "None"),
		metric("PoolUsedPercent", 20, "Percent", "Pool", "all"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	check.That(t, !strings.Contains(g.log.String(), "secret-name"), "the log names an identity")
}

// commit draws on the pool, as another process does.
func (g *rig) commit(amount price.Pico) {
	g.t.Helper()
	buckets, err := bucket.New(g.db(nil), bucket.Options{Table: g.table, LongestPeriod: 2 * time.Hour, Now: g.Now})
	check.OK(g.t, err)
	pool, err := buckets.NewPool("pool#all", int64(20*price.Dollar), time.Hour, bucket.PoolOptions{})
	check.OK(g.t, err)
	if reserved, _, err := pool.Reserve(context.Background(), int64(amount)); reserved == nil {
		g.t.Fatal(err)
	}
}

func TestUnusedPoolIsUnused(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.tick()
	used := slices.IndexFunc(g.inbox.Metrics(), func(m inbox.Metric) bool { return m.Name == "PoolUsedPercent" && m.Value == 0 })
	if used < 0 {
		t.Errorf("%+v", g.inbox.Metrics())
	}
}
