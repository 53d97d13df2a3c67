package alarm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/local/inbox"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
	"github.com/tokenfuse/tokenfuse/testkit/stagetest"
	"github.com/tokenfuse/tokenfuse/testkit/testclock"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// noon is where timelines begin.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const testEndpoint = "https://abc.example.com/prod"

// rig is a handler on real parts: the engine, a ledger, and an inbox for SNS and
// CloudWatch, each behind a network that can fail; and a clock that tests move.
type rig struct {
	*testclock.Clock
	t         *testing.T
	policy    *policy.Policy
	stage     *stage.Stage
	inbox     *inbox.Inbox
	table     string
	store     *faults.Transport // between handlers and the table Limits
	published *faults.Transport // between handlers and SNS
	ledger    *ledger.Ledger
	fuse      *fuse.Writer
	handler   *Handler
	log       *buffer.Synced
	events    int
}

func newRig(t *testing.T, alarm policy.Alarm) *rig {
	t.Helper()
	g := &rig{Clock: testclock.At(noon), t: t, store: &faults.Transport{}, published: &faults.Transport{}, log: &buffer.Synced{}}
	g.stage = stagetest.New(t, stage.Options{Now: g.Now})
	g.inbox, g.table = g.stage.Inbox, g.stage.Limits
	if alarm.RepeatEvery == 0 {
		alarm.RepeatEvery = time.Hour
	}
	if alarm.Floor == 0 {
		alarm.Floor = price.Dollar
	}
	if alarm.Fuse == "" {
		alarm.Fuse = "none"
	}
	g.policy = &policy.Policy{
		Tiers: map[string]*policy.Tier{
			"anonymous": {Requests: &policy.Limit{Name: "requests", Capacity: 1, Period: time.Minute}},
			"user":      {Requests: &policy.Limit{Name: "requests", Capacity: 1, Period: time.Minute}},
		},
		Pools: map[string]*policy.Pool{"all": {Name: "all", Ceiling: 20 * price.Dollar, Period: time.Hour}},
		Alarm: &alarm,
	}
	var err error
	g.ledger, err = ledger.New(g.stage.DynamoDB(), ledger.Options{Table: g.stage.Spend, Now: g.Now, Shards: 1})
	check.OK(t, err)
	g.fuse = fuse.NewWriter(g.db(nil), g.table, g.Now)
	g.handler = g.process()
	return g
}

// db is a client of the table Limits, over net.
func (g *rig) db(net http.RoundTripper) *dynamodb.Client {
	return g.stage.DynamoDB(func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: net}
		o.Retryer = retry.AddWithMaxBackoffDelay(retry.NewStandard(), time.Millisecond)
	})
}

// process makes a handler that shares nothing with others but the tables and the
// network.
func (g *rig) process() *Handler {
	g.t.Helper()
	return g.processOn(g.store, g.published, g.Now)
}

// processOn makes a handler with networks, to the table Limits and to SNS, and a clock.
func (g *rig) processOn(store, published http.RoundTripper, now func() time.Time) *Handler {
	g.t.Helper()
	aws := g.stage.AWS()
	aws.RetryMaxAttempts = 1
	h, err := New(Config{
		Policy: g.policy, Ledger: g.ledger, State: g.db(store), Table: g.table, TopicARN: stage.TopicARN,
		SNS:        sns.NewFromConfig(aws, func(o *sns.Options) { o.HTTPClient = &http.Client{Transport: published} }),
		CloudWatch: cloudwatch.NewFromConfig(aws),
		Endpoint:   testEndpoint, Now: now, Log: slog.New(slog.NewJSONHandler(g.log, nil)),
	})
	check.OK(g.t, err)
	return h
}

// at moves the clock to so many minutes after noon.
func (g *rig) at(minutes int) { g.Set(noon.Add(time.Duration(minutes) * time.Minute)) }

// call is what one provider call cost.
type call struct {
	cents    int
	identity string // empty: net#a
	tier     string // empty: anonymous
	ago      time.Duration
}

// spend records a call, a second ago unless it says otherwise.
func (g *rig) spend(c call) {
	g.t.Helper()
	if c.identity == "" {
		c.identity = "net#a"
	}
	if c.tier == "" {
		c.tier = "anonymous"
	}
	g.events++
	err := g.ledger.Record(context.Background(), ledger.Event{
		Reservation: fmt.Sprint("r", g.events), Time: g.Now().Add(-max(c.ago, time.Second)), Identity: c.identity, Tier: c.tier,
		Feature: "docqa", Model: "small", Cost: price.Pico(c.cents) * price.Dollar / 100, Outcome: ledger.Completed})
	check.OK(g.t, err)
}

// tick runs the handler, which must not fail.
func (g *rig) tick() Result {
	g.t.Helper()
	r, err := g.handler.Run(context.Background())
	if err != nil {
		g.t.Fatalf("at %s: %v", g.Now().Format("15:04"), err)
	}
	return r
}

// pages are the events of all pages that arrived.
func (g *rig) pages() []string {
	events := []string{}
	for _, m := range g.inbox.Messages() {
		events = append(events, m.Attributes["event"])
	}
	return events
}

func (g *rig) wantPages(want ...string) {
	g.t.Helper()
	if got := g.pages(); fmt.Sprint(got) != fmt.Sprint(want) {
		g.t.Errorf("at %s: pages %v, want %v", g.Now().Format("15:04"), got, want)
	}
}

func (g *rig) wantFuse(state fuse.State, setBy string) {
	g.t.Helper()
	s, err := g.fuse.Current(context.Background())
	if err != nil || s.State != state || s.SetBy != setBy {
		g.t.Errorf("at %s: the fuse is %+v, %v, want %s by %q", g.Now().Format("15:04"), s, err, state, setBy)
	}
}

// lose makes a network lose every request, until it is mended.
func lose(net *faults.Transport) {
	net.Plan = faults.Always(faults.LostRequest)
}

func mend(net *faults.Transport) { net.Plan = nil }

// dollars8 is an alarm at a fixed 8 dollars.
var dollars8 = policy.Alarm{Threshold: 8 * price.Dollar}

var errLost = faults.ErrLost

func (g *rig) tickFails() Result {
	g.t.Helper()
	r, err := g.handler.Run(context.Background())
	if !errors.Is(err, errLost) {
		g.t.Errorf("at %s: error %v, want a lost connection", g.Now().Format("15:04"), err)
	}
	return r
}
