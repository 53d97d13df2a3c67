package alarm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// pace is the time by which the next hour is projected; less would be noise.
const pace = 10 * time.Minute

// page is what is told.
type page struct {
	event        event
	decided      time.Time // when that was known
	threshold    threshold
	baseline     baseline
	sum          ledger.Summary
	projected    price.Pico
	hasProjected bool
}

// send publishes a page: a text for people, attributes for machines, to filter by and,
// in "report", all of r as JSON.
func (h *Handler) send(ctx context.Context, p page, r Result) error {
	report, err := json.Marshal(r)
	if err != nil {
		return err
	}
	attribute := func(kind, value string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String(kind), StringValue: aws.String(value)}
	}
	_, err = h.SNS.Publish(ctx, &sns.PublishInput{
		TopicArn: &h.TopicARN,
		Subject:  aws.String(p.subject(r)),
		Message:  aws.String(p.text(r, h.Endpoint)),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"event":         attribute("String", r.Paged),
			"level":         attribute("Number", strconv.Itoa(r.Level)),
			"spend_usd":     attribute("Number", comparable(p.sum.Total.Cost)),
			"threshold_usd": attribute("Number", comparable(p.threshold.amount)),
			"report":        attribute("String", string(report)),
		},
	})
	return err
}

// comparable is an amount as subscriptions can filter by: they compare numbers to 5
// digits after the point (SNS, "Filter policy constraints"). The report is exact.
func comparable(p price.Pico) string {
	const digit = price.Dollar / 100_000
	return ((p/digit + p%digit/(digit/2)) * digit).String()
}

// subject is at most 100 ASCII characters.
func (p page) subject(r Result) string {
	what := map[event]string{
		none:   "", // is not sent
		opened: "ALARM", escalated: fmt.Sprintf("ALARM, now %dx", r.Level), repeated: "ALARM goes on", cleared: "all clear",
	}[p.event]
	return fmt.Sprintf("tokenfuse %s: %s in the last hour, threshold %s", what, dollars(p.sum.Total.Cost), dollars(p.threshold.amount))
}

// text is the message for a person.
func (p page) text(r Result, endpoint string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s", map[event]string{
		none:      "", // is not sent
		opened:    "Spending is above its threshold.",
		escalated: fmt.Sprintf("Spending has reached %d times its threshold.", r.Level),
		repeated:  "Spending is still not back to normal.",
		cleared:   "Spending is back to normal.",
	}[p.event])
	line("")
	line("  last 60 minutes       %s in %s", dollars(p.sum.Total.Cost), calls(p.sum.Total.Calls))
	line("  threshold             %s (%s)", dollars(p.threshold.amount), p.threshold.why)
	if p.baseline.known {
		line("  highest normal hour   %s (%s)", dollars(p.baseline.highest), p.baseline.where())
	}
	if p.hasProjected {
		line("  next hour             %s, at the pace of the last %.0f minutes", dollars(p.projected), pace.Minutes())
	}
	if r.Since != nil {
		line("  alarm since           %s", r.Since.Format("2 January 2006 15:04 UTC"))
	}
	line("")
	if len(r.Top) > 0 {
		line("Who spent it:")
		for i, s := range r.Top {
			line("%4d. %3d%%  %-10s %-12s %s", i+1, s.Percent, dollars(p.sum.Top[i].Cost), calls(s.Calls), quote(s.Identity))
		}
		line("")
		line("By tier: %s.", breakdown(p.sum.Tiers, r.Tiers))
		line("By feature: %s.", breakdown(p.sum.Features, r.Features))
		line("By model: %s.", breakdown(p.sum.Models, r.Models))
		if a := p.sum.Total; a.Abandoned > 0 {
			line("Of this, %s (%s) ended unseen and counted at the most that they can have cost.", calls(a.Abandoned), dollars(a.AbandonedCost))
		}
		line("")
	}
	line("%s", p.fuseText(r))
	line("")
	line("What you can do:")
	where := "" // the command finds it as people have set it
	if endpoint != "" {
		where = " --endpoint " + quote(endpoint)
	}
	for _, c := range commands(r.Top) {
		line("  %s", c.what)
		line("    tokenfuse %s%s", c.command, where)
	}
	line("")
	line("What you set stays: the alarm does not override it. If this much is normal now, raise %s in tokenfuse.yaml.", p.threshold.raise)
	return b.String()
}

// where says what the highest normal hour is the highest of.
func (b baseline) where() string {
	if b.days == 1 {
		return "of the past 30 days"
	}
	return fmt.Sprintf("reached on %d different days of the past 30", b.days)
}

// effects say what the states of the fuse do.
var effects = map[string]string{
	string(fuse.Closed):       "all callers are served",
	string(fuse.Challenge):    "anonymous callers must solve a challenge first",
	string(fuse.AnonymousOff): "anonymous callers are refused, users are served",
	string(fuse.Open):         "nobody is served",
}

func (p page) fuseText(r Result) string {
	if r.Fuse == "" {
		return "The fuse could not be read; see the log of spendalarm."
	}
	said := fmt.Sprintf("The fuse is %s: %s.", r.Fuse, effects[r.Fuse])
	if r.FuseSetBy == "" || r.Fuse == string(fuse.Closed) {
		return said
	}
	if r.FuseSetBy == setBy {
		said += " This alarm set it and renews it while it lasts"
	} else {
		said += " It was set by " + quote(r.FuseSetBy)
	}
	if r.FuseUntil != nil {
		said += ", now until " + r.FuseUntil.Format("15:04 UTC")
	}
	return said + "."
}

type command struct{ what, command string }

func commands(top []Spender) []command {
	all := []command{{"see how things stand", "status"}}
	if len(top) > 0 {
		who := quote(top[0].Identity)
		all = append(all, command{"look at who spent most", "limits " + who}, command{"refuse who spent most", "block " + who + " --for 1d"})
	}
	return append(all,
		command{"ask anonymous callers for a challenge", "fuse set challenge --for 1h"},
		command{"cut off anonymous callers", "fuse set anonymous_off --for 1h"},
		command{"cut off everybody: open the fuse", "fuse set open --for 1h"},
		command{"serve everybody again", "fuse set closed"},
		command{"clear the limits of a user who was hit unfairly (USER: id or e-mail address)", "clear-limit USER --type all"})
}

// breakdown lists shares, the largest first.
func breakdown(amounts map[string]ledger.Amount, shares map[string]Share) string {
	names := slices.SortedFunc(maps.Keys(amounts), func(a, b string) int {
		if amounts[a].Cost != amounts[b].Cost {
			if amounts[a].Cost > amounts[b].Cost {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		shown := name
		if name == "" {
			shown = unknown
		}
		parts = append(parts, fmt.Sprintf("%s %d%% (%s)", shown, shares[shown].Percent, dollars(amounts[name].Cost)))
	}
	return strings.Join(parts, ", ")
}

func calls(n int64) string {
	if n == 1 {
		return "1 call"
	}
	return strconv.FormatInt(n, 10) + " calls"
}

// dollars is an amount for a person, to the cent.
func dollars(p price.Pico) string {
	const cent = price.Dollar / 100
	cents := p / cent
	if p%cent >= cent/2 {
		cents++
	}
	if cents == 0 && p > 0 {
		return "under $0.01"
	}
	return fmt.Sprintf("$%d.%02d", cents/100, cents%100)
}
