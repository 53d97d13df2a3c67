package alarm

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func TestRunsAtOncePageOnce(t *testing.T) {
	t.Parallel()
	g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar, Fuse: "challenge"})
	g.spend(call{cents: 900})
	together := func() {
		var wg sync.WaitGroup
		for range 8 {
			h := g.process()
			wg.Go(func() {
				if _, err := h.Run(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	together()
	g.wantPages("opened")
	g.wantFuse(fuse.Challenge, "alarm")
	g.at(59)
	g.spend(call{cents: 800})
	together()
	g.wantPages("opened", "escalated")
	g.at(120)
	together()
	g.wantPages("opened", "escalated", "cleared")
	g.wantFuse(fuse.Closed, "alarm")
}

// A run that is under way keeps a second one from paging, which finds the claim.
func TestOverlappingRunPagesNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	other := g.process()
	g.published.Plan = func(string, []byte) faults.Fault {
		if r, err := other.Run(context.Background()); err != nil || r.Paged != "" || r.State != "alarm" {
			t.Errorf("the second run: %+v, %v", r, err)
		}
		return faults.None
	}
	if r := g.tick(); r.Paged != "opened" {
		t.Errorf("the first run paged %q", r.Paged)
	}
	g.wantPages("opened")
}

func TestPublishingFailsForThreeTicks(t *testing.T) {
	t.Parallel()
	g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar, Fuse: "challenge"})
	g.spend(call{cents: 900})
	lose(g.published)
	for _, minute := range []int{0, 5, 10} {
		g.at(minute)
		r := g.tickFails()
		check.That(t, r.Paged == "" && r.State == "alarm" && r.Level == 0, "minute %d: %+v", minute, r)
		g.wantFuse(fuse.Challenge, "alarm") // at once, whoever can be told
	}
	mend(g.published)
	g.at(15)
	if r := g.tick(); r.Paged != "opened" || !r.Since.Equal(noon) {
		t.Errorf("when it works again: %+v", r)
	}
	g.at(20)
	g.tick()
	g.wantPages("opened")
}

// The invocation is retried at once: the claim was given up.
func TestRetryAfterAFailedPublish(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	lose(g.published)
	g.tickFails()
	mend(g.published)
	g.tick()
	g.wantPages("opened")
}

func TestOverBeforeAnybodyWasTold(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	lose(g.published)
	g.tickFails()
	mend(g.published)
	g.at(90)
	g.tick()
	g.at(95)
	g.tick()
	g.wantPages("cleared")
	m := g.inbox.Messages()[0].Message
	check.That(t, strings.Contains(m, "alarm since           30 November 2026 12:00 UTC"), "the message does not say since when:\n%s", m)
}

func TestDeathBetweenPublishingAndConfirming(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	g.published.Plan = func(string, []byte) faults.Fault {
		lose(g.store) // dead to the store from here on
		return faults.None
	}
	g.tickFails()
	g.wantPages("opened")
	mend(g.store)
	mend(g.published)
	g.at(1) // the claim still stands
	g.tick()
	g.wantPages("opened")
	for _, minute := range []int{5, 10, 15} {
		g.at(minute)
		g.tick()
	}
	g.wantPages("opened", "opened")
}

func TestDeathBetweenClaimingAndPublishing(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	g.published.Plan = func(string, []byte) faults.Fault {
		lose(g.store)
		return faults.LostRequest
	}
	g.tickFails()
	g.wantPages()
	mend(g.store)
	mend(g.published)
	for _, minute := range []int{5, 10} {
		g.at(minute)
		g.tick()
	}
	g.wantPages("opened")
}

// The store does what it is asked, but each first answer is lost or is an error.
func TestLostRepliesPageOnce(t *testing.T) {
	t.Parallel()
	for _, fault := range []faults.Fault{faults.LostReply, faults.ErrorReply, faults.LostRequest, faults.ServerError} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			t.Parallel()
			g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar, Fuse: "open"})
			g.spend(call{cents: 900})
			seen := map[string]bool{}
			g.store.Plan = func(target string, body []byte) faults.Fault {
				if key := target + string(body); !seen[key] {
					seen[key] = true
					return fault
				}
				return faults.None
			}
			g.tick()
			g.at(5)
			g.tick()
			g.wantPages("opened")
			g.wantFuse(fuse.Open, "alarm")
			g.at(61)
			g.tick()
			g.wantPages("opened", "cleared")
			g.wantFuse(fuse.Closed, "alarm")
		})
	}
}

func TestStoreThatCannotBeReadFailsLoudly(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	lose(g.store)
	r := g.tickFails()
	check.That(t, r.Paged == "" && r.State == "unknown" && r.SpendUSD == "9", "without a claim: %+v", r)
	check.That(t, len(g.inbox.Metrics()) != 0, "no metrics though CloudWatch can be reached")
	mend(g.store)
	g.at(5)
	g.tick()
	g.wantPages("opened")
}

// The page is more important than the fuse: it goes out, and says that the fuse could
// not be read.
func TestFuseThatCannotBeSet(t *testing.T) {
	t.Parallel()
	g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar, Fuse: "open"})
	g.spend(call{cents: 900})
	g.store.Plan = func(_ string, body []byte) faults.Fault {
		if bytes.Contains(body, []byte(`{"S":"fuse"}`)) {
			return faults.LostRequest
		}
		return faults.None
	}
	g.tickFails()
	g.wantPages("opened")
	m := g.inbox.Messages()[0].Message
	check.That(t, strings.Contains(m, "The fuse could not be read"), "the message claims to know the fuse:\n%s", m)
	mend(g.store)
	g.at(5)
	g.tick()
	g.wantPages("opened")
	g.wantFuse(fuse.Open, "alarm")
}

// A fuse that cannot be released is tried again: the incident is not over before.
func TestFuseThatCannotBeReleased(t *testing.T) {
	t.Parallel()
	g := newRig(t, policy.Alarm{Threshold: 8 * price.Dollar, Fuse: "open"})
	g.spend(call{cents: 900})
	g.at(30)
	g.tick()
	g.store.Plan = func(target string, _ []byte) faults.Fault {
		if strings.HasSuffix(target, ".UpdateItem") {
			return faults.LostRequest
		}
		return faults.None
	}
	g.at(61)
	g.tickFails()
	g.wantFuse(fuse.Open, "alarm")
	mend(g.store)
	g.at(66)
	g.tick()
	g.wantFuse(fuse.Closed, "alarm")
	g.wantPages("opened", "cleared")
}

// noPast is a ledger whose past cannot be read.
type noPast struct{ Ledger }

func (noPast) Hours(context.Context, time.Time, time.Time) ([]ledger.Hour, error) {
	return nil, errLost
}

func TestPastThatCannotBeRead(t *testing.T) {
	t.Parallel()
	g := newRig(t, both)
	g.handler.Ledger = noPast{g.ledger}
	g.spend(call{cents: 900})
	r := g.tickFails()
	check.That(t, r.Paged == "opened" && r.ThresholdUSD == "8", "the fixed threshold was not used: %+v", r)
	g.wantPages("opened")

	g = newRig(t, factor4)
	g.handler.Ledger = noPast{g.ledger}
	g.spend(call{cents: 900})
	g.tickFails() // nobody knows what is normal
	g.wantPages()
}

func TestMetricsFailBesideAPage(t *testing.T) {
	t.Parallel()
	g := newRig(t, dollars8)
	g.spend(call{cents: 900})
	o := g.handler.CloudWatch.(*cloudwatch.Client).Options()
	o.HTTPClient = &http.Client{Transport: &faults.Transport{Plan: faults.Always(faults.LostRequest)}}
	g.handler.CloudWatch = cloudwatch.New(o)
	if _, err := g.handler.Run(context.Background()); err == nil {
		t.Error("nobody learns that there are no metrics")
	}
	g.wantPages("opened")
}
