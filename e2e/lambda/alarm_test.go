package lambda

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// scheduled is what EventBridge Scheduler sends.
const scheduled = `{"version":"0","id":"53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa","detail-type":"Scheduled Event","source":"aws.scheduler",` +
	`"account":"123456789012","time":"2026-11-30T12:00:00Z","region":"us-east-1","resources":["arn:aws:scheduler:us-east-1:123456789012:schedule/default/alarm"],"detail":"{}"}`

// tick runs spendalarm once.
func tick(t *testing.T, f *runtimeapi.Function) (result map[string]any, failure *runtimeapi.FunctionError) {
	t.Helper()
	i := f.Invoke([]byte(scheduled), timeout)
	answer, err := i.Answer(within(t))
	check.OK(t, err)
	raw, err := io.ReadAll(answer.Body)
	check.OK(t, err)
	<-i.Done()
	if answer.Error == nil {
		err := json.Unmarshal(raw, &result)
		check.Must(t, err == nil, "%v: %s", err, raw)
	}
	return result, answer.Error
}

// What was spent through one function is paged by another, and the first obeys the fuse
// that it sets.
func TestAlarm(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	alarm := g.warm("spendalarm", "TOKENFUSE_ENDPOINT=https://abc.example.com/prod")
	if r, err := tick(t, alarm); err != nil || r["state"] != "normal" || r["fuse"] != "closed" {
		t.Errorf("before anything is spent: %v, %v", r, err)
	}
	if sent := g.stage.Inbox.Messages(); len(sent) != 0 {
		t.Errorf("paged: %v", sent)
	}
	generate := g.warm("generate")
	a := whole(t, g.ask(generate, g.token("ann"), chat("ask", question, true), timeout))
	check.Must(t, a.status == 200, "%d %s", a.status, a.body)
	r, failure := tick(t, alarm)
	check.That(t, failure == nil && r["state"] == "alarm" && r["paged"] == "opened" && r["fuse"] == "anonymous_off" && r["calls"] == 1.0, "%v, %v", r, failure)
	sent := g.stage.Inbox.Messages()
	check.Must(t, len(sent) == 1 && strings.HasPrefix(sent[0].Subject, "tokenfuse ALARM") && strings.Contains(sent[0].Message, "user#ann") && strings.Contains(sent[0].Message, "https://abc.example.com/prod"),
		"%v", sent)
	if again, err := tick(t, alarm); err != nil || again["paged"] != nil || len(g.stage.Inbox.Messages()) != 1 {
		t.Errorf("paged again: %v, %v", again, err)
	}
	whole(t, g.ask(g.warm("generate"), "", chat("ask", question, false), timeout)).refused(t, 503, "fuse_open")
	names := map[string]bool{}
	for _, m := range g.stage.Inbox.Metrics() {
		names[m.Name] = true
	}
	for _, want := range []string{"TrailingHourDollars", "AlarmLevel", "PoolUsedPercent"} {
		check.That(t, names[want], "no metric %s: %v", want, names)
	}
	logged(t, alarm)
}

// A page that does not go out fails the invocation, which is what fires the alarm on
// the function's own errors; the next run pages.
func TestAlarmCannotPage(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := whole(t, g.ask(g.warm("generate"), g.token("ann"), chat("ask", question, false), timeout))
	check.Must(t, a.status == 200, "%d %s", a.status, a.body)
	dead := g.warm("spendalarm", "AWS_ENDPOINT_URL_SNS=http://127.0.0.1:1")
	if r, failure := tick(t, dead); failure == nil || !strings.Contains(failure.Message, "SNS") {
		t.Errorf("%v, %v", r, failure)
	}
	if r, failure := tick(t, g.warm("spendalarm")); failure != nil || r["paged"] != "opened" || len(g.stage.Inbox.Messages()) != 1 {
		t.Errorf("%v, %v; %d pages", r, failure, len(g.stage.Inbox.Messages()))
	}
}
