package emf

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	w := New(&out, "tokenfuse", func() time.Time { return time.UnixMilli(1_800_000_000_123) })
	w.Write(
		Group{[]Dimension{{"Feature", "docqa"}, {"Tier", "user"}}, []Metric{{"Admitted", Count, 1}, {"StoreLatency", Milliseconds, 3.5}}},
		Group{[]Dimension{{"Limit", "tokens"}}, []Metric{{"Denied", Count, 1}}},
		Group{Dimensions: []Dimension{{"Nothing", "said"}}},
	)
	var got, want any
	check.OK(t, json.Unmarshal(out.Bytes(), &got))
	check.OK(t, json.Unmarshal([]byte(`{
		"_aws": {"Timestamp": 1800000000123, "CloudWatchMetrics": [
			{"Namespace": "tokenfuse", "Dimensions": [["Feature", "Tier"]], "Metrics": [{"Name": "Admitted", "Unit": "Count"}, {"Name": "StoreLatency", "Unit": "Milliseconds"}]},
			{"Namespace": "tokenfuse", "Dimensions": [["Limit"]], "Metrics": [{"Name": "Denied", "Unit": "Count"}]}]},
		"Feature": "docqa", "Tier": "user", "Limit": "tokens", "Admitted": 1, "StoreLatency": 3.5, "Denied": 1}`), &want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	check.That(t, bytes.Count(out.Bytes(), []byte("\n")) == 1, "not one line")
}

func TestNothingToWrite(t *testing.T) {
	var out bytes.Buffer
	w := New(&out, "tokenfuse", time.Now)
	w.Write()
	w.Write(Group{Dimensions: []Dimension{{"Feature", "docqa"}}})
	w.Write(Group{Metrics: []Metric{{"Odd", None, math.NaN()}}})
	check.That(t, out.Len() == 0, "wrote %s", out.String())
}

// Who wants one metric alone gets the lines that have it, whole, and no others.
func TestNewOnly(t *testing.T) {
	var out bytes.Buffer
	w := NewOnly("Denied", &out, "test", time.Now)
	admitted, denied := Group{Metrics: []Metric{{"Admitted", Count, 1}}}, Group{Metrics: []Metric{{"Denied", Count, 1}}}
	w.Write(admitted)
	check.Equal(t, out.Len(), 0, "bytes of a line without it")
	w.Write(admitted, denied)
	check.That(t, bytes.Count(out.Bytes(), []byte("\n")) == 1 && bytes.Contains(out.Bytes(), []byte(`"Admitted":1`)) && bytes.Contains(out.Bytes(), []byte(`"Denied":1`)), "%s", &out)
}
