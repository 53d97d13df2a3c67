package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

type tokenCommand struct {
	Sub        string        `required:"" help:"The user's id."`
	Email      string        `help:"The user's e-mail address, marked as verified."`
	Unverified bool          `help:"Mark the address as not verified."`
	Plan       string        `help:"The user's plan: the name of a tier."`
	TTL        time.Duration `default:"1h" help:"How long the token is good."`
	Endpoint   string        `help:"Where dev runs ($TOKENFUSE_ENDPOINT; default: http://127.0.0.1:8787)." placeholder:"URL"`
}

// maxAnswer bounds what is read of an endpoint's answer, in bytes.
const maxAnswer = 1 << 20

func (c *tokenCommand) Run(ctx context.Context, s streams) error {
	ask := map[string]any{"sub": c.Sub, "ttl": c.TTL.String()}
	if c.Email != "" {
		ask["email"] = c.Email
	}
	if c.Unverified {
		ask["unverified"] = true
	}
	if c.Plan != "" {
		ask["plan"] = c.Plan
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	endpoint, err := rootOf("--endpoint", cmp.Or(c.Endpoint, environmentEndpoint(), "http://127.0.0.1:8787"))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/dev/token", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the rest of it repeats the endpoint
	}
	if err != nil {
		return fmt.Errorf("no answer from %s: is `tokenfuse dev` running? (%w)", endpoint, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	var got struct {
		Token string
		Error struct{ Message string }
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Token == "" {
		if got.Error.Message != "" {
			return fmt.Errorf("no token: %s", got.Error.Message)
		}
		return fmt.Errorf("no token: %s answered %s: is `tokenfuse dev` running there?", endpoint, res.Status)
	}
	if s.json {
		return s.answer(map[string]string{"token": got.Token})
	}
	fmt.Fprintln(s.out, got.Token)
	return nil
}
