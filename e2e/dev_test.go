package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// dev is a running `tokenfuse dev`.
type dev struct {
	url, store string         // where it and its engine serve
	adminURL   string         // of serve
	issuer     *issuer.Issuer // of serve's users; nil: dev's own
	cmd        *exec.Cmd
	ready      chan struct{} // closed when it serves
	exited     chan struct{} // closed when it has ended

	mu  sync.Mutex
	out strings.Builder
}

// startDev starts dev with a configuration and waits until it serves. When the
// test ends it is stopped, if it still runs, and must stop cleanly.
func startDev(t *testing.T, config string, args ...string) *dev {
	t.Helper()
	args = append([]string{"dev", "--listen", "127.0.0.1:0", "--config", config}, args...)
	return follow(t, exec.Command(binary, args...))
}

// follow starts a command that is to become a dev.
func follow(t *testing.T, cmd *exec.Cmd) *dev {
	t.Helper()
	d := &dev{cmd: cmd, ready: make(chan struct{}), exited: make(chan struct{})}
	d.cmd.Dir = root
	// Nothing of the environment gets in: a provider's key in it would cost money.
	d.cmd.Env = append(d.cmd.Env, "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "TMPDIR="+os.TempDir())
	ownGroup(d.cmd)
	stdout, err := d.cmd.StdoutPipe()
	check.OK(t, err)
	d.cmd.Stderr = (*devStderr)(d)
	check.OK(t, d.cmd.Start())
	t.Cleanup(func() {
		if d.running() {
			check.Equal(t, d.stop(t, syscall.SIGTERM), 0, "dev ended with code")
		}
		if t.Failed() {
			t.Logf("dev wrote:\n%s", d.output())
		}
	})
	go d.read(stdout)
	select {
	case <-d.ready:
	case <-d.exited:
		t.Fatalf("dev ended at its start: %v", d.cmd.ProcessState)
	case <-time.After(patience):
		t.Fatal("dev is not ready")
	}
	return d
}

// read reads what dev says until it has ended.
func (d *dev) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		line := lines.Text()
		d.write(line + "\n")
		if url, ok := strings.CutPrefix(line, "ready "); ok {
			d.url = url
			close(d.ready)
		}
		var serves struct {
			Msg, Address string
			Admin        string `json:"admin_address"`
		}
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &serves) == nil && serves.Msg == "tokenfuse serves" {
			d.url, d.adminURL = "http://"+serves.Address, "http://"+serves.Admin
			close(d.ready)
		}
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "store" {
			d.store = fields[1]
		}
	}
	_ = d.cmd.Wait()
	close(d.exited)
}

func (d *dev) write(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.WriteString(s)
}

// devStderr is where a dev's errors go.
type devStderr dev

func (e *devStderr) Write(p []byte) (int, error) {
	(*dev)(e).write(string(p))
	return len(p), nil
}

func (d *dev) output() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.String()
}

func (d *dev) running() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// stop sends a signal and gives the exit code.
func (d *dev) stop(t *testing.T, signal os.Signal) int {
	t.Helper()
	check.OK(t, d.cmd.Process.Signal(signal))
	return d.exitCode(t)
}

// exitCode waits for the end.
func (d *dev) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-d.exited:
	case <-time.After(patience):
		_ = killGroup(d.cmd)
		<-d.exited
		t.Errorf("dev did not stop")
	}
	return d.cmd.ProcessState.ExitCode()
}

// writeConfig makes a configuration's file.
func writeConfig(t *testing.T, yaml string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokenfuse.yaml")
	check.OK(t, os.WriteFile(file, []byte(yaml), 0o600))
	return file
}

// testConfig has limits that refill by less than one unit during a test, so that
// what remains is what was not used. No key of its providers is set: the
// built-in model answers.
func testConfig(t *testing.T, tokens int) string {
	t.Helper()
	return writeConfig(t, fmt.Sprintf(`
providers:
  main:  {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}, timeout: 30s}
  hasty: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}, timeout: 700ms}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0.40", output: "1.60"}}
  hasty: {provider: hasty, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0.40", output: "1.60"}}
features:
  ask:   {model: small, max_output_tokens: 100}
  hasty: {model: hasty, max_output_tokens: 100}
  cv:    {model: small, max_output_tokens: 100, tiers: [user], quota: {capacity: 3, per: 100d}}
tiers:
  anonymous: {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 1000, limits: {tokens: {capacity: %[1]d, per: 100d}}}
  user:      {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 1000, limits: {tokens: {capacity: %[1]d, per: 100d}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}
`, tokens))
}
