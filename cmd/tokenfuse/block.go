package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// whomArg is what block and unblock take.
type whomArg struct {
	Whom   string `arg:"" name:"whom" help:"A user's id, e-mail address, or identity as the log has it: user#ID, net#KEY, pass#KEY."`
	Reason string `help:"Why, for the audit." placeholder:"TEXT"`
}

func (w whomArg) ask() map[string]string {
	field, name := whom(w.Whom)
	ask := map[string]string{field: name}
	if w.Reason != "" {
		ask["reason"] = w.Reason
	}
	return ask
}

type blockCommand struct {
	whomArg
	For time.Duration `required:"" help:"How long, such as 2h or 1d; it ends by itself." placeholder:"1d"`
	adminFlags
}

type unblockCommand struct {
	whomArg
	adminFlags
}

// block is a block as the admin routes show it.
type block struct {
	Until int64  // Unix seconds
	SetBy string `json:"set_by"`
}

func (b block) String() string {
	return "blocked until " + moment(b.Until) + ", by " + printable(b.SetBy)
}

// moment shows Unix seconds.
func moment(unix int64) string { return time.Unix(unix, 0).UTC().Format("2006-01-02 15:04:05 UTC") }

// blocked is the answer to both.
type blocked struct {
	Identity identified
	Known    bool
	Was      bool `json:"was_blocked"`
	Blocked  *block
}

func (c *blockCommand) Run(ctx context.Context, s streams) error {
	if c.For < time.Second {
		return errors.New("--for must be at least 1s")
	}
	ask := c.ask()
	ask["for"] = c.For.String()
	var got blocked
	if err := c.call(ctx, s, http.MethodPost, "/admin/block", ask, &got); err != nil || s.json {
		return err
	}
	if got.Blocked == nil {
		return fmt.Errorf("%s is not blocked: somebody ended it at the same time", got.Identity)
	}
	fmt.Fprintf(s.out, "%s is %s\n", got.Identity, got.Blocked)
	if !got.Known {
		fmt.Fprintln(s.out, "note: nothing is known of them at the moment: is it spelt right?")
	}
	return nil
}

func (c *unblockCommand) Run(ctx context.Context, s streams) error {
	var got blocked
	if err := c.call(ctx, s, http.MethodPost, "/admin/unblock", c.ask(), &got); err != nil || s.json {
		return err
	}
	switch {
	case got.Blocked != nil:
		return fmt.Errorf("%s is %s: somebody did that at the same time", got.Identity, got.Blocked)
	case !got.Was:
		fmt.Fprintf(s.out, "%s was not blocked: nothing was changed\n", got.Identity)
	default:
		fmt.Fprintf(s.out, "%s is not blocked any more\n", got.Identity)
	}
	return nil
}
