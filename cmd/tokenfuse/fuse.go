package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

type fuseCommand struct {
	Show fuseShowCommand `cmd:"" help:"Show the fuse, who set it, and until when."`
	Set  fuseSetCommand  `cmd:"" help:"Set the fuse: closed (everything runs), challenge (visitors must solve one), anonymous_off (users only), open (nothing runs)."`
}

type fuseShowCommand struct{ adminFlags }

type fuseSetCommand struct {
	State  string         `arg:"" enum:"closed,challenge,anonymous_off,open" help:"closed, challenge, anonymous_off or open."`
	For    *time.Duration `help:"How long, such as 30m or 2h (default: until it is set anew)." placeholder:"1h"`
	Reason string         `help:"Why, for the audit." placeholder:"TEXT"`
	adminFlags
}

// fuseState is the fuse as the admin route shows it.
type fuseState struct {
	State string
	Until int64  // Unix seconds; 0: for ever
	SetBy string `json:"set_by"`
}

func (f fuseState) String() string {
	shown := "the fuse is " + printable(f.State)
	if f.Until != 0 {
		shown += " until " + time.Unix(f.Until, 0).UTC().Format("2006-01-02 15:04:05 UTC")
	}
	if f.SetBy != "" {
		shown += ", set by " + printable(f.SetBy)
	}
	return shown
}

func (c *fuseShowCommand) Run(ctx context.Context, s streams) error {
	var f fuseState
	if err := c.call(ctx, s, http.MethodGet, "/admin/fuse", nil, &f); err != nil || c.JSON {
		return err
	}
	fmt.Fprintln(s.out, f)
	return nil
}

func (c *fuseSetCommand) Run(ctx context.Context, s streams) error {
	ask := map[string]string{"state": c.State}
	if c.For != nil {
		if *c.For < time.Second {
			return errors.New("--for must be at least 1s")
		}
		ask["for"] = c.For.String()
	}
	if c.Reason != "" {
		ask["reason"] = c.Reason
	}
	var f fuseState
	if err := c.call(ctx, s, http.MethodPut, "/admin/fuse", ask, &f); err != nil || c.JSON {
		return err
	}
	fmt.Fprintln(s.out, f)
	return nil
}
