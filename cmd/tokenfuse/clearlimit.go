package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/keys"
)

type clearLimitCommand struct {
	Whom   string `arg:"" name:"whom" help:"A user's id, e-mail address, or identity as the log has it: user#ID, net#KEY, pass#KEY; or a pool, whose debt is forgiven: pool:NAME."`
	Type   string `help:"What to clear: all, a feature's quota by the feature's name, or a limit by its name. Required, but of a pool." placeholder:"all|FEATURE|LIMIT"`
	Reason string `help:"Why, for the audit." placeholder:"TEXT"`
	adminFlags
}

// Validate implements kong's check of what was typed.
func (c *clearLimitCommand) Validate() error {
	if c.Type != "" {
		return nil
	}
	_, name := whom(c.Whom)
	if _, ok := keys.Pool.ID(name); !ok {
		return errors.New("missing flags: --type=all|FEATURE|LIMIT")
	}
	c.Type = "all"
	return nil
}

func (c *clearLimitCommand) Run(ctx context.Context, s streams) error {
	field, name := whom(c.Whom)
	ask := map[string]string{field: name, "type": c.Type}
	if c.Reason != "" {
		ask["reason"] = c.Reason
	}
	var got struct {
		Identity identified
		Limits   []struct {
			limited
			Before, After left
			Others        []struct {
				Tiers         []string
				Capacity      int64
				Before, After left
			} `json:"other_tiers"`
		}
		Forgiven int64
	}
	if err := c.call(ctx, s, http.MethodPost, "/admin/limits/clear", ask, &got); err != nil || s.json {
		return err
	}
	switch {
	case got.Identity.Kind != "pool":
		fmt.Fprintf(s.out, "cleared %s of %s\n", c.Type, got.Identity)
	case got.Forgiven == 0:
		fmt.Fprintf(s.out, "%s has no debt: it was left as it is\n", got.Identity)
	default:
		fmt.Fprintf(s.out, "forgave %s that %s owed: it is empty now and refilling\n", amount("usd_micros", got.Forgiven), got.Identity)
	}
	var rows [][]string
	for _, l := range got.Limits {
		row := func(tiers []string, capacity int64, before, after left) {
			rows = append(rows, []string{l.Name, l.Client, strings.Join(tiers, ", "), amount(l.Unit, before.Remaining), amount(l.Unit, after.Remaining),
				amount(l.Unit, capacity), inTime(l.Period)})
		}
		row(l.Tiers, l.Capacity, l.Before, l.After)
		for _, o := range l.Others {
			row(o.Tiers, o.Capacity, o.Before, o.After)
		}
	}
	if len(rows) > 0 {
		table(s.out, []string{"LIMIT", "CLIENT", "FOR TIER", "LEFT BEFORE", "LEFT NOW", "OF", "PER"}, rows)
	}
	return nil
}
