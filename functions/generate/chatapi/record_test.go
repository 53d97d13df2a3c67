package chatapi

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// TestUnrecordedCallKeepsItsHold: a call whose spend event cannot be written is
// answered, but not settled: it would be missing from the trailing sum for good.
// Who sweeps its hold records it.
func TestUnrecordedCallKeepsItsHold(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	start := g.now()
	var down atomic.Bool
	db := engine.Client(enginetest.URL(), func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: &faults.Transport{Plan: func(string, []byte) faults.Fault {
			if down.Load() {
				return faults.LostRequest
			}
			return faults.None
		}}}
	})
	_, spend := enginetest.SpendTable(t)
	var err error
	g.handler.admission.Ledger, err = ledger.New(db, ledger.Options{Table: spend, Now: g.now, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	token := g.token("ann", "")
	before := g.remaining(token)

	down.Store(true)
	cv := `{"model":"cv","messages":[{"role":"user","content":"Hi."}],"max_tokens":100}`
	if a := g.chat(token, cv); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	worst := before["tokens"] - g.remaining(token)["tokens"]
	if g.open("user#ann") != 1 || worst < 100 || g.remaining(token)["cv"] != before["cv"]-1 || len(g.logged("recording a spend event failed: the hold expires by itself")) != 1 {
		t.Fatalf("%d open, %d tokens held, log %s", g.open("user#ann"), worst, g.log)
	}

	down.Store(false)
	g.freeze(time.Minute)
	if a := g.chat(token, cv); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	sum, err := g.handler.admission.Ledger.Sum(t.Context(), start.Add(-time.Minute), g.now().Add(time.Minute))
	check.OK(t, err)
	events := g.spendEvents() // the one that is in the log alone, the second call's, the first one's
	check.Must(t, len(events) == 3 && events[2].Outcome == ledger.Abandoned && events[2].Reservation == events[0].Reservation, "events %+v", events)
	if a := sum.Total; a.Calls != 2 || a.Abandoned != 1 || a.AbandonedCost != events[2].Cost || a.Cost != events[1].Cost+events[2].Cost {
		t.Errorf("sum %+v of %+v", a, events)
	}
	// The quota of the swept call is back, that of the answered one used.
	if left := g.remaining(token)["cv"]; g.open("user#ann") != 0 || left != before["cv"]-1 {
		t.Errorf("%d open, %d CVs left", g.open("user#ann"), left)
	}
}
