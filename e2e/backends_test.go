package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/widget"
)

// recipe is the first code of a kind in docs/backends.md in which the words stand.
func recipe(t *testing.T, kind, words string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/backends.md"))
	check.OK(t, err)
	for _, code := range regexp.MustCompile("(?ms)^ *```"+kind+"$(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(code[1], words) {
			return code[1]
		}
	}
	t.Fatalf("docs/backends.md has no %s with %s", kind, words)
	return ""
}

// indented takes the indentation of a recipe off.
func indented(text string) string {
	return strings.ReplaceAll(text, "\n   ", "\n")
}

// A server as docs/backends.md prints it, with the configuration that it prints: each of
// its visitors has limits of their own, and solves challenges through it.
func TestBackendOfTheDocs(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile(filepath.Join(root, "tokenfuse.yaml"))
	check.OK(t, err)
	pools := indented(recipe(t, "yaml", "pools:\n"))
	d := startDev(t, writeConfig(t, strings.Replace(string(config), "\npools:\n", pools, 1)+indented(recipe(t, "yaml", "backends:"))))
	made := regexp.MustCompile(`(?m)^  backend    web: Authorization: Bearer ([0-9a-f]{32})$`).FindStringSubmatch(d.output())
	check.Must(t, made != nil, "dev prints no secret of the backend")
	server := exec.Command("node", "--input-type=module", "-")
	server.Dir, server.Stdin = root, strings.NewReader(recipe(t, "js", "openai"))
	server.Env = append(os.Environ(), "PORT=0", "TOKENFUSE_URL="+d.url, "TOKENFUSE_BACKEND_SECRET="+made[1])
	url := serve(t, server)

	// visit is a request of a browser at an address of this machine.
	visit := func(from, method, path, pass, body string) answer {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		check.OK(t, err)
		req.Header.Set("User-Agent", "Mozilla/5.0")
		if pass != "" {
			req.Header.Set("X-Challenge-Pass", pass)
		}
		browser := http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext, DisableKeepAlives: true}}
		res, err := browser.Do(req)
		check.OK(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		check.OK(t, err)
		return answer{status: res.StatusCode, header: res.Header, body: string(text)}
	}
	const somebody, another = "127.0.0.1", "127.0.9.9"
	ask := func(from, pass string) answer {
		return visit(from, http.MethodPost, "/api/ask", pass, `{"question":"Why?"}`)
	}
	// Three at a time, so that the limit is not refilled meanwhile, however slow the machine.
	last := answer{status: http.StatusOK}
	for round := 0; round < 7 && last.status == http.StatusOK; round++ {
		var answers [3]answer
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = ask(somebody, "") })
		}
		all.Wait()
		// A refusal, if there is one.
		last = slices.MaxFunc(answers[:], func(a, b answer) int { return cmp.Compare(a.status, b.status) })
	}
	check.Must(t, last.status == http.StatusForbidden && strings.Contains(last.body, `"challenge_required"`) && !strings.Contains(last.body, "trusted backend"),
		"it ends in %d %s", last.status, last.body)
	if a := ask(another, ""); a.status != http.StatusOK || a.body == "" {
		t.Errorf("another visitor: %d %s", a.status, a.body)
	}
	solution := widget.Solve(t, []byte(visit(somebody, http.MethodGet, "/api/challenge", "", "").body))
	var got struct{ Pass string }
	if a := visit(somebody, http.MethodPost, "/api/challenge", "", fmt.Sprintf(`{"payload":%q}`, solution)); json.Unmarshal([]byte(a.body), &got) != nil || got.Pass == "" {
		t.Fatalf("the challenge: %d %s", a.status, a.body)
	}
	if a := ask(somebody, got.Pass); a.status != http.StatusOK {
		t.Errorf("with the pass: %d %s", a.status, a.body)
	}
	if a := ask(another, got.Pass); a.status != http.StatusForbidden || !strings.Contains(a.body, `"challenge_failed"`) {
		t.Errorf("the pass of somebody else: %d %s", a.status, a.body)
	}

	// Support sees the visitors by their keys, and their bound.
	spent := d.must(t, "limits", "pool:web")
	check.That(t, strings.Contains(spent, "spend_ceiling"), "limits pool:web says\n%s", spent)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/limits", http.NoBody)
	check.OK(t, err)
	req.Header = http.Header{"Authorization": {"Bearer " + made[1]}, "X-Visitor-Id": {"42"}, "X-Visitor-Tier": {"user"}}
	res, err := http.DefaultClient.Do(req)
	check.OK(t, err)
	defer res.Body.Close()
	var view struct{ Identity struct{ ID, Tier string } }
	if err := json.NewDecoder(res.Body).Decode(&view); err != nil || view.Identity.Tier != "user" || !strings.HasPrefix(view.Identity.ID, "user#web#") {
		t.Errorf("the account: %+v, %v", view, err)
	}
}

// serve starts a server that prints "ready URL", and ends it with the test.
func serve(t *testing.T, cmd *exec.Cmd) (url string) {
	t.Helper()
	ownGroup(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	check.OK(t, err)
	check.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = killGroup(cmd)
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscanf(out, "ready %s\n", &url); err != nil {
		t.Fatalf("the server does not start: %v\n%s", err, stderr.String())
	}
	return url
}
