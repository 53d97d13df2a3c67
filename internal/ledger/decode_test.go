package ledger

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// What usual events are kept as is read by scan, and by nothing else.
func TestScan(t *testing.T) {
	t.Parallel()
	usage := price.Usage{Input: 5, CachedInput: 2, CacheWrite: 1, Output: 9, Reasoning: 3}
	for name, e := range map[string]Event{
		"all":       {Time: noon, Identity: "user#auth0|123", Tier: "pro", Feature: "cv", Model: "small", Usage: usage, Cost: math.MaxInt64, Outcome: Completed, Estimated: true},
		"little":    {Time: noon, Identity: "net#a", Outcome: Failed},
		"abandoned": {Time: noon, Identity: "pass#a b/+=:,}{", Feature: "cv", Model: "small", Cost: 1, Outcome: Abandoned},
	} {
		it, err := e.item(partition{})
		if err != nil {
			t.Fatal(err)
		}
		var r, want record
		data := textOf(it, attrEvent)
		if err := json.Unmarshal([]byte(data), &want); err != nil {
			t.Fatal(err)
		}
		if !r.scan(data) {
			t.Errorf("%s is not scanned: %s", name, data)
		} else if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What scan reads, it reads as encoding/json does.
func FuzzScan(f *testing.F) {
	for _, data := range []string{
		`{"time":1772453461123456,"identity":"user#1","tier":"pro","feature":"cv","model":"small","input":5,"cached_input":2,"cache_write":1,"output":9,"reasoning":3,"pico_dollars":9223372036854775807,"outcome":"completed","estimated":true}`,
		`{"time":0,"identity":"user#\"o","pico_dollars":1,"outcome":"failed"}`,
		`{}`, `{"time":1,}`, `{"time":01}`, `{"time":+1}`, `{"time":-1}`, `{"time":1e3}`, `{"time":"1"}`, `{"time":1}}`, `{"time":1`, `{"time":}`, `{"TIME":1}`,
		`{"time":1,"time":2}`, `{"tier":1}`, `{"tier":"a\tb"}`, "{\"tier\":\"a\tb\"}", "{\"tier\":\"\xff\"}", `{"tier":"é"}`, `{"estimated":false}`, `{"estimated":1}`, `{"a\"":1}`, `{"more":1}`, ` {"time":1}`,
	} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) {
		var r, want record
		if !r.scan(data) {
			return
		}
		if err := json.Unmarshal([]byte(data), &want); err != nil {
			t.Fatalf("%q was read: %v", data, err)
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("%q: %s", data, diff)
		}
	})
}
