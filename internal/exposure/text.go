package exposure

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// names say who the callers are, for people.
var names = map[Who]string{
	Client: "one client", Network: "one network", ManyNetworks: "1,000 networks", AllAnonymous: "all anonymous",
	OneUser: "one user", Backend: "all of backend", Everybody: "everybody",
}

// Write renders r for people: the summary, a table, and what it rests on.
func (r Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nDollars an hour, at worst:\n\n", r.Summary)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "tier\tfeature\twho\tdearest call\twithout bundle\tanswered calls\tbounded by\twith bundle\tbounded by")
	features := map[string]int{}
	for _, l := range r.Lines {
		if l.Who == Network || l.Who == OneUser {
			features[l.Tier]++ // and one more, for all of them
		}
	}
	for _, l := range r.Lines {
		feature := l.Feature
		switch {
		case l.Who == Everybody:
			fmt.Fprintln(table, "\t\t\t\t\t\t\t\t")
		case feature == "" && features[l.Tier] == 2:
			continue // the same as the only feature
		case feature == "":
			feature = "any"
		}
		who := strings.TrimSpace(names[l.Who] + " " + l.Backend)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Tier, feature, who, l.DearestCall, l.Without, l.Answered, cmp.Or(l.AnsweredBy, unbounded), l.With, l.by())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	alarm := fmt.Sprintf("factor: %d", r.Alarm.Factor)
	if r.Alarm.Threshold != Unbounded {
		alarm = fmt.Sprintf("threshold_usd: %q", price.Pico(r.Alarm.Threshold))
	}
	fmt.Fprintf(&b, "\nSuggested alarm: %s. %s\n\nWhat this rests on:\n", alarm, r.Alarm.Why)
	for _, a := range r.Assumptions {
		fmt.Fprintf(&b, "- %s\n", a)
	}
	// The table's padding must not end lines.
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}

// unbounded stands where nothing bounds an amount.
const unbounded = "nothing"

// by says what bounds a line. If that is a pool, it also says what the limits alone
// would allow.
func (l Line) by() string {
	switch {
	case l.By == "":
		return unbounded
	case l.With < l.Limits && l.Limits != Unbounded:
		return fmt.Sprintf("%s; its limits: %s = %s", l.By, l.LimitsBy, l.Limits)
	}
	return l.By
}
