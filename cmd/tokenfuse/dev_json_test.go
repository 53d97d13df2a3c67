package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// With --json dev says where it serves, and nothing else.
func TestDevAsJSON(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"dev", "--json", "--fake-provider", "--listen", "127.0.0.1:0", "--config", "../../tokenfuse.yaml", "--dynamodb", enginetest.URL()}, streams{out: in, err: &errs})
		in.Close()
	}()
	said := json.NewDecoder(out)
	var ready struct {
		URL    string `json:"url"`
		Key    string `json:"aws_access_key_id"`
		Secret string `json:"aws_secret_access_key"`
	}
	check.OK(t, said.Decode(&ready))
	res, err := http.Get(ready.URL + "/v1/models")
	check.OK(t, err)
	res.Body.Close()
	check.That(t, res.StatusCode == http.StatusOK && ready.Key != "" && ready.Secret != "", "%d %+v", res.StatusCode, ready)
	stop()
	rest, err := io.ReadAll(io.MultiReader(said.Buffered(), out))
	check.OK(t, err)
	check.That(t, <-ended == 0 && len(bytes.TrimSpace(rest)) == 0 && errs.Len() == 0, "%s %s", rest, &errs)
}
