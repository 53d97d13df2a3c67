package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// serves reports whether something listens at a URL.
func serves(url string) bool {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// await polls for what has no event to wait for.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		check.Must(t, !time.Now().After(deadline), "waited in vain: %s", what)
	}
}

// A stop lets the call in flight finish and settle, keeps what it cost, and
// leaves nothing behind.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			const capacity = 1000
			config, data := testConfig(t, capacity), t.TempDir()
			d := startDev(t, config, "--data", data)
			engine := children(t, d.cmd.Process.Pid)
			anonymous := capacity - d.complete(t, "", question{feature: "ask", text: "Go on. [[long]]", most: 20})

			token := d.token(t, "123")
			res, err := d.open(t.Context(), token, question{feature: "ask", text: "Go on. [[long]]", most: 100, stream: true})
			check.OK(t, err)
			asked := time.Now()
			check.OK(t, d.cmd.Process.Signal(signal))
			a, err := read(res, nil)
			check.OK(t, err)
			c, err := a.completion()
			check.That(t, err == nil && c.done && c.Usage.Output == 100, "the call in flight did not finish: %v: %s", err, a.body)
			check.Equal(t, d.exitCode(t), 0, "exit code")
			took := time.Since(asked)
			check.That(t, took <= 15*time.Second, "stopping took %v", took)
			check.That(t, !serves(d.url) && !serves(d.store), "it still serves")
			for _, pid := range engine {
				check.That(t, !alive(pid), "the engine, process %d, still runs", pid)
			}

			// With the data come the keys: what was given out before is still good.
			again := startDev(t, config, "--data", data)
			if got, want := again.remaining(t, token, "tokens"), capacity-c.Usage.Total; got != want {
				t.Errorf("after a restart %d tokens remain, want %d", got, want)
			}
			if id, secret := d.keys(t); !strings.Contains(again.output(), "AWS_ACCESS_KEY_ID="+id+" AWS_SECRET_ACCESS_KEY="+secret) {
				t.Error("the key pair has changed")
			}
			files, err := os.ReadDir(data)
			check.OK(t, err)
			for _, file := range files {
				if info, err := file.Info(); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s may be read: %v %v", file.Name(), info.Mode(), err)
				}
			}
			check.Equal(t, again.remaining(t, "", "tokens"), anonymous, "after a restart … tokens remain to the anonymous caller")
		})
	}
}

// As in Lambda, a caller that leaves is not noticed: the call finishes, and the
// limits settle to the whole answer.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	const capacity = 1000
	d := startDev(t, testConfig(t, capacity))
	token := d.token(t, "123")
	q := question{feature: "cv", text: "I am a welder.", most: 100, stream: true}
	cost := d.complete(t, token, q)

	res, err := d.open(t.Context(), token, q)
	check.OK(t, err)
	check.Must(t, res.StatusCode == http.StatusOK, "status %d", res.StatusCode)
	if _, err := res.Body.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if got := d.remaining(t, token, "tokens"); got >= capacity-2*cost {
		t.Errorf("%d tokens remain while the call lasts: its worst case is not reserved", got)
	}
	res.Body.Close() // in mid-stream, this closes the connection
	await(t, "the limits settle to the whole answer", func() bool { return d.remaining(t, token, "tokens") == capacity-2*cost })
	check.Equal(t, d.remaining(t, token, "cv"), 1, "answers left")
}

// With the data a pass outlives a restart, and so does what was used of it.
func TestPassOutlivesRestart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	start := func() *dev { return startDev(t, "tokenfuse.yaml", "--data", data) }
	d := start()
	payload := visitor{d: d}.solve(t, d.url+"/v1/challenge")
	a := visitor{d: d}.mustSend(t, http.MethodPost, d.url+"/v1/challenge", `{"payload":"`+payload+`"}`)
	var bought struct{ Pass string }
	err := json.Unmarshal([]byte(a.body), &bought)
	check.Must(t, err == nil && bought.Pass != "", "no pass: %d %s", a.status, a.body)
	holder := func(d *dev) visitor { return visitor{d: d, header: map[string]string{"X-Challenge-Pass": bought.Pass}} }
	if a := holder(d).mustAsk(t, question{feature: "docqa", text: "Go on.", most: 20}); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	calls := func(d *dev) string {
		a := holder(d).mustSend(t, http.MethodGet, d.url+"/v1/limits", "")
		return regexp.MustCompile(`"id":"pass#[^"]*".*"name":"pass_calls","unit":"calls","capacity":20,"period_seconds":1800,"remaining":19`).FindString(a.body)
	}
	before := calls(d)
	check.Equal(t, d.stop(t, syscall.SIGTERM), 0, "exit code")
	after := calls(start())
	check.That(t, before != "" && after == before, "%q has become %q", before, after)
}
