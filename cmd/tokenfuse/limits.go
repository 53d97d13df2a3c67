package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

type limitsCommand struct {
	Whom string `arg:"" name:"whom" help:"A user's id, e-mail address, or identity as the log has it: user#ID, net#KEY, pass#KEY; or a pool: pool:NAME."`
	adminFlags
}

// identified is an identity as the admin routes show it.
type identified struct{ Kind, ID, Tier string }

func (i identified) String() string {
	if i.Kind == "user" {
		return "user " + printable(i.ID)
	}
	return printable(i.ID)
}

// left is what is left of a limit.
type left struct {
	Remaining int64
	Reset     int64 `json:"reset_seconds"`
	Debt      int64 // of a pool
}

// lack shows a debt, "" if there is none.
func (l left) lack(unit string) string {
	if l.Debt == 0 {
		return ""
	}
	return amount(unit, l.Debt)
}

// limited is a limit as the admin routes show it.
type limited struct {
	Name, Unit, Client string
	Capacity           int64
	Period             int64 `json:"period_seconds"`
	Tiers              []string
}

func (c *limitsCommand) Run(ctx context.Context, s streams) error {
	var got struct {
		Identity identified
		Fuse     string
		Limits   []struct {
			limited
			left
			Others []struct {
				Tiers    []string
				Capacity int64
				left
			} `json:"other_tiers"`
		}
		InFlight int `json:"in_flight"`
		Blocked  *block
	}
	field, name := whom(c.Whom)
	query := url.Values{field: {name}}
	if err := c.call(ctx, s, http.MethodGet, "/admin/limits?"+query.Encode(), nil, &got); err != nil || s.json {
		return err
	}
	if got.Identity.Kind == "pool" {
		fmt.Fprintf(s.out, "%s; the fuse is %s\n", got.Identity, printable(got.Fuse))
	} else {
		fmt.Fprintf(s.out, "%s: %d calls in flight; the fuse is %s\n", got.Identity, got.InFlight, printable(got.Fuse))
		if got.Blocked != nil {
			fmt.Fprintln(s.out, got.Blocked)
		}
	}
	var tiers []string // that the identity may have
	var rows [][]string
	for _, l := range got.Limits {
		row := func(name string, among []string, capacity int64, x left) {
			tiers = append(tiers, among...)
			rows = append(rows, []string{name, l.Client, strings.Join(among, ", "), amount(l.Unit, x.Remaining), amount(l.Unit, capacity), inTime(l.Period), inTime(x.Reset), x.lack(l.Unit)})
		}
		row(l.Name, l.Tiers, l.Capacity, l.left)
		for _, o := range l.Others {
			row(l.Name, o.Tiers, o.Capacity, o.left)
		}
	}
	slices.Sort(tiers)
	switch tiers = slices.Compact(tiers); {
	case got.Identity.Tier != "":
		fmt.Fprintf(s.out, "tier: %s\n", printable(got.Identity.Tier))
	case len(tiers) > 0:
		fmt.Fprintf(s.out, "tier: %s, as the token of the user says\n", printable(strings.Join(tiers, " or ")))
	}
	table(s.out, []string{"LIMIT", "CLIENT", "FOR TIER", "LEFT", "OF", "PER", "FULL IN", "DEBT"}, rows)
	return nil
}

// amount shows a number of a limit's unit: money in dollars.
func amount(unit string, n int64) string {
	if unit == "usd_micros" {
		return fmt.Sprintf("$%d.%06d", n/1e6, n%1e6)
	}
	return strconv.FormatInt(n, 10)
}

// inTime shows seconds as a duration without its zeros: 24h, 1m30s.
func inTime(seconds int64) string {
	d := (time.Duration(seconds) * time.Second).String()
	if short, ok := strings.CutSuffix(d, "m0s"); ok {
		d = short + "m"
	}
	if short, ok := strings.CutSuffix(d, "h0m"); ok {
		d = short + "h"
	}
	return d
}
