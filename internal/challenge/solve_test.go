package challenge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const solver = "../../examples/altcha-solve.mjs"

// ALTCHA's own library solves what we issue, and we accept what it makes of it.
func TestOfficialLibrarySolves(t *testing.T) {
	t.Parallel()
	a := must(NewAltcha(secret, time.Now))
	challenge := must(a.Create("net", 0))
	cmd := exec.Command("node", solver)
	cmd.Stdin = bytes.NewReader(must(json.Marshal(challenge)))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	check.Must(t, err == nil, "%v: %s", err, stderr.String())
	payload := strings.TrimSuffix(string(out), "\n")

	s, err := a.Verify(context.Background(), "net", "", payload)
	check.That(t, err == nil && s.ID == challenge.Parameters.Nonce, "%v, %v", s, err)
	if _, err := a.Verify(context.Background(), "other", "", payload); !errors.Is(err, ErrStolen) {
		t.Errorf("for another network: %v", err)
	}
	// And once only.
	used, _ := newUsed(t, nil)
	if err := used.Claim(context.Background(), s); err != nil {
		t.Error(err)
	}
	if err := used.Claim(context.Background(), s); !errors.Is(err, ErrUsed) {
		t.Errorf("a second time: %v", err)
	}
}

func TestSolverFailsOnNonsense(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("node", solver)
	cmd.Stdin = strings.NewReader(`{"error":{"message":"no"}}`)
	if out, err := cmd.Output(); err == nil {
		t.Errorf("printed %q", out)
	}
}
