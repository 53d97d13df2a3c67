package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/span"
)

type fuseCommand struct {
	Show fuseShowCommand `cmd:"" help:"Show the fuse, who set it, and until when."`
	Set  fuseSetCommand  `cmd:"" help:"Set the fuse: closed (everything runs), challenge (visitors must solve one), anonymous_off (users only), open (nothing runs)."`
}

type fuseShowCommand struct{ adminFlags }

type fuseSetCommand struct {
	State  string         `arg:"" enum:"closed,challenge,anonymous_off,open" help:"closed, challenge, anonymous_off or open."`
	For    *time.Duration `help:"How long, such as 30m, 2h or 1d. Without it open lasts an hour, or as long as you say when you are asked; other states last until the fuse is set anew." placeholder:"1h" xor:"end"`
	NoEnd  bool           `help:"Open the fuse until it is set anew." xor:"end"`
	Reason string         `help:"Why, for the audit." placeholder:"TEXT"`
	adminFlags
}

// fuseState is the fuse as the admin route shows it.
type fuseState struct {
	State string
	Until int64  // Unix seconds; 0: for ever
	SetBy string `json:"set_by"`
	Why   string `json:"reason"`
}

func (f fuseState) String() string {
	shown := "the fuse is " + printable(f.State)
	if f.Until != 0 {
		shown += " until " + moment(f.Until)
	}
	if f.SetBy != "" {
		shown += ", set by " + printable(f.SetBy)
	}
	if f.Why != "" {
		shown += ": " + printable(f.Why)
	}
	return shown
}

func (c *fuseShowCommand) Run(ctx context.Context, s streams) error {
	var f fuseState
	if err := c.call(ctx, s, http.MethodGet, "/admin/fuse", nil, &f); err != nil || s.json {
		return err
	}
	fmt.Fprintln(s.out, f)
	return nil
}

func (c *fuseSetCommand) Run(ctx context.Context, s streams) error {
	ask := map[string]string{"state": c.State}
	assumed, err := c.end(s)
	if err != nil {
		return err
	}
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
	if err := c.call(ctx, s, http.MethodPut, "/admin/fuse", ask, &f); err != nil || s.json {
		return err
	}
	fmt.Fprintln(s.out, f)
	if assumed {
		fmt.Fprintln(s.out, "note: an hour, since no time was given: --for gives one, and --no-end none")
	}
	return nil
}

// openFor is how long the fuse is open if nobody says how long.
const openFor = time.Hour

// end sees to it that nobody is switched off for ever by an oversight: who opens the fuse
// without a time is asked for one, and if there is nobody to ask, an hour is assumed.
func (c *fuseSetCommand) end(s streams) (assumed bool, err error) {
	if c.State != "open" || c.For != nil || c.NoEnd {
		return false, nil
	}
	hour := openFor
	c.For = &hour
	if s.person == nil || s.json {
		return true, nil
	}
	fmt.Fprintf(s.err, "An open fuse serves nobody. For how long? (such as 30m or 1d, or for ever) [%s] ", inTime(int64(openFor.Seconds())))
	line, _ := bufio.NewReader(io.LimitReader(s.person, 1000)).ReadString('\n') // who says nothing gets an hour
	switch said := strings.TrimSpace(line); said {
	case "":
		return true, nil
	case "for ever", "forever":
		c.For = nil
		return false, nil
	default:
		if *c.For, err = span.Parse(said); err != nil {
			return false, fmt.Errorf("%q is not a duration such as 30m or 1d: nothing was changed", said)
		}
		return false, nil
	}
}
