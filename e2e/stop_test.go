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
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			asked := time.Now()
			if err := d.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			a, err := read(res, nil)
			if err != nil {
				t.Fatal(err)
			}
			c, err := a.completion()
			if err != nil || !c.done || c.Usage.Output != 100 {
				t.Errorf("the call in flight did not finish: %v: %s", err, a.body)
			}
			if code := d.exitCode(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if took := time.Since(asked); took > 15*time.Second {
				t.Errorf("stopping took %v", took)
			}
			if serves(d.url) || serves(d.store) {
				t.Error("it still serves")
			}
			for _, pid := range engine {
				if alive(pid) {
					t.Errorf("the engine, process %d, still runs", pid)
				}
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
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if info, err := file.Info(); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s may be read: %v %v", file.Name(), info.Mode(), err)
				}
			}
			if got := again.remaining(t, "", "tokens"); got != anonymous {
				t.Errorf("after a restart %d tokens remain to the anonymous caller, want %d", got, anonymous)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d", res.StatusCode)
	}
	if _, err := res.Body.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if got := d.remaining(t, token, "tokens"); got >= capacity-2*cost {
		t.Errorf("%d tokens remain while the call lasts: its worst case is not reserved", got)
	}
	res.Body.Close() // in mid-stream, this closes the connection
	await(t, "the limits settle to the whole answer", func() bool { return d.remaining(t, token, "tokens") == capacity-2*cost })
	if got := d.remaining(t, token, "cv"); got != 1 {
		t.Errorf("%d answers left, want 1", got)
	}
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
	if err := json.Unmarshal([]byte(a.body), &bought); err != nil || bought.Pass == "" {
		t.Fatalf("no pass: %d %s", a.status, a.body)
	}
	holder := func(d *dev) visitor { return visitor{d: d, header: map[string]string{"X-Challenge-Pass": bought.Pass}} }
	if a := holder(d).mustAsk(t, question{feature: "docqa", text: "Go on.", most: 20}); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	calls := func(d *dev) string {
		a := holder(d).mustSend(t, http.MethodGet, d.url+"/v1/limits", "")
		return regexp.MustCompile(`"id":"pass#[^"]*".*"name":"pass_calls","unit":"calls","capacity":20,"period_seconds":1800,"remaining":19`).FindString(a.body)
	}
	before := calls(d)
	if code := d.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if after := calls(start()); before == "" || after != before {
		t.Errorf("%q has become %q", before, after)
	}
}
