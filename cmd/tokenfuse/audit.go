package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

type auditCommand struct {
	Since    time.Duration `help:"Only what is not older, such as 2h or 7d." placeholder:"7d"`
	Identity string        `help:"Only the changes of this user's id, e-mail address or identity, of pool:NAME, or of the fuse." placeholder:"WHOM"`
	Before   int64         `help:"Only changes with a smaller number: the next page." placeholder:"N"`
	adminFlags
}

func (c *auditCommand) Run(ctx context.Context, s streams) error {
	query := url.Values{}
	if c.Since > 0 {
		query.Set("since", strconv.FormatInt(time.Now().Add(-c.Since).Unix(), 10))
	}
	if c.Before > 0 {
		query.Set("before", strconv.FormatInt(c.Before, 10))
	}
	if c.Identity == "fuse" {
		query.Set("identity", c.Identity)
	} else if c.Identity != "" {
		field, name := whom(c.Identity)
		query.Set(field, name)
	}
	route := "/admin/audit"
	if len(query) > 0 {
		route += "?" + query.Encode()
	}
	var got struct {
		Changes []struct {
			N, At                int64
			Who, Whom, What, Why string
		}
		Next *int64
	}
	if err := c.call(ctx, s, http.MethodGet, route, nil, &got); err != nil || s.json {
		return err
	}
	var rows [][]string
	for _, change := range got.Changes {
		rows = append(rows, []string{moment(change.At), printable(change.Who), printable(change.Whom), printable(change.What), printable(change.Why)})
	}
	switch {
	case len(rows) > 0:
		table(s.out, []string{"WHEN", "WHO", "WHOM", "WHAT", "WHY"}, rows)
	case got.Next == nil:
		fmt.Fprintln(s.out, "no changes")
	}
	if got.Next != nil {
		fmt.Fprintf(s.out, "older ones: --before %d\n", *got.Next)
	}
	return nil
}
