package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strconv"
)

type statusCommand struct{ adminFlags }

// statusView is a status as the admin route shows it; dollars are exact decimals. What is
// null could not be read.
type statusView struct {
	Spend *struct {
		USD   string
		Calls int64
		Top   []struct {
			Identity, USD string
			Calls         int64
		}
	}
	Alarm *struct {
		State     string
		Since     int64
		Threshold string `json:"threshold_usd"`
		From      string `json:"threshold_from"`
		Peak      string `json:"normal_peak_usd"`
		Seen      int64
	}
	Fuse   *fuseState
	Blocks []struct {
		Identity string
		block
	}
	Pools []struct {
		Name      string
		Ceiling   string `json:"ceiling_usd"`
		Period    int64  `json:"period_seconds"`
		AtOnce    string `json:"at_once_usd"`
		Spent     string `json:"spent_usd"`
		Committed string `json:"committed_usd"`
		Free      string `json:"free_usd"`
		Debt      string `json:"debt_usd"`
	}
	Denials   map[string]int64
	DenialsOf string `json:"denials_of"`
	Problems  []string
}

func (c *statusCommand) Run(ctx context.Context, s streams) error {
	var v statusView
	if err := c.call(ctx, s, http.MethodGet, "/admin/status", nil, &v); err != nil || s.json {
		return err
	}
	v.write(s)
	return nil
}

func (v *statusView) write(s streams) {
	line := func(what, format string, args ...any) {
		fmt.Fprintf(s.out, "%-12s%s\n", what, printable(fmt.Sprintf(format, args...)))
	}
	for _, problem := range v.Problems {
		line("problem", "%s", problem)
	}
	if v.Spend != nil {
		line("last hour", "%s in %s", cents(v.Spend.USD), counted(v.Spend.Calls))
	}
	if a := v.Alarm; a != nil {
		switch {
		case a.State == "off":
			line("alarm", "there is none in the configuration")
		case a.Since != 0:
			line("alarm", "ALARM since %s", moment(a.Since))
		case a.Seen == 0:
			line("alarm", "spendalarm has not run yet")
		default:
			line("alarm", "%s", a.State)
		}
		if a.Threshold != "" {
			line("threshold", "%s: %s (as of %s)", cents(a.Threshold), a.From, moment(a.Seen))
		}
		if a.Peak != "" {
			line("baseline", "%s: the highest normal hour", cents(a.Peak))
		}
	}
	if v.Fuse != nil {
		line("fuse", "%s", v.Fuse)
	}
	section := func(what string, head []string, rows [][]string) {
		if len(rows) > 0 {
			fmt.Fprintf(s.out, "\n%s\n", what)
			table(s.out, head, rows)
		}
	}
	var rows [][]string
	for _, p := range v.Pools {
		spent := ""
		if p.Spent != "" {
			spent = cents(p.Spent)
		}
		debt := ""
		if p.Debt != "0" {
			debt = cents(p.Debt)
		}
		rows = append(rows, []string{printable(p.Name), spent, cents(p.Committed), cents(p.Free), cents(p.AtOnce), cents(p.Ceiling), inTime(p.Period), debt})
	}
	section("Pools (committed: spent or out on lease, and not refilled yet)", []string{"POOL", "SPENT LAST HOUR", "COMMITTED", "FREE NOW", "OF AT ONCE", "CEILING", "PER", "DEBT"}, rows)
	rows = nil
	for _, b := range v.Blocks {
		rows = append(rows, []string{printable(b.Identity), moment(b.Until), printable(b.SetBy)})
	}
	section("Blocked", []string{"WHO", "UNTIL", "BY"}, rows)
	rows = nil
	for _, limit := range slices.SortedFunc(maps.Keys(v.Denials), func(a, b string) int {
		return cmp.Or(cmp.Compare(v.Denials[b], v.Denials[a]), cmp.Compare(a, b))
	}) {
		rows = append(rows, []string{printable(limit), strconv.FormatInt(v.Denials[limit], 10)})
	}
	denied := "Denied in the last hour"
	if v.DenialsOf == "process" {
		denied += " by the process that answers this"
	}
	section(denied, []string{"BY", "CALLS"}, rows)
	if v.Spend == nil {
		return
	}
	rows = nil
	for _, top := range v.Spend.Top {
		rows = append(rows, []string{printable(top.Identity), cents(top.USD), strconv.FormatInt(top.Calls, 10)})
	}
	section("Who spent most in the last hour", []string{"WHO", "SPENT", "CALLS"}, rows)
}

func counted(calls int64) string {
	if calls == 1 {
		return "1 call"
	}
	return strconv.FormatInt(calls, 10) + " calls"
}

// cents shows dollars rounded to the cent, or to a hundredth of it if they are less.
func cents(usd string) string {
	amount, ok := new(big.Rat).SetString(usd)
	if !ok {
		return printable(usd)
	}
	digits := 2
	if amount.Sign() > 0 && amount.Cmp(big.NewRat(1, 100)) < 0 {
		digits = 4
	}
	return "$" + amount.FloatString(digits)
}
