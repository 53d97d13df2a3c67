package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// features lists what can be called.
func (d *dev) features(t *testing.T) string {
	t.Helper()
	a, err := read(client.Get(d.url + "/v1/models"))
	check.OK(t, err)
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal([]byte(a.body), &list); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

// A change of the configuration counts at once, for the calls that come: those under way
// end as they began, what was used stays used, and addresses stay. One with mistakes does
// not count. The file's folder may have any name, and its lines any ends.
func TestReload(t *testing.T) {
	t.Parallel()
	const capacity = 1000
	config := filepath.Join(t.TempDir(), "Übung mit 'Zeichen' 日本", "token fuse.yaml")
	check.OK(t, os.Mkdir(filepath.Dir(config), 0o700))
	source := testConfig(t, capacity)
	first, err := os.ReadFile(source)
	check.OK(t, err)
	write := func(text string) {
		t.Helper()
		check.OK(t, os.WriteFile(config, []byte(text), 0o600))
	}
	write(strings.ReplaceAll(string(first), "\n", "\r\n"))
	d := startDev(t, config, "--data", filepath.Join(filepath.Dir(config), "Daten"))
	token := d.token(t, "123")
	used := d.complete(t, token, question{feature: "ask", text: "Go on.", most: 20})
	if got := d.features(t); got != "ask hasty" {
		t.Fatalf("features: %s", got)
	}
	res, err := d.open(t.Context(), token, question{feature: "ask", text: "Go on. [[long]]", most: 100, stream: true})
	check.OK(t, err)

	// One feature has another name, and users may have more.
	second := strings.Replace(string(first), "\n  ask: ", "\n  question: ", 1)
	second = strings.Replace(second, "  user:      {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 1000, limits: {tokens: {capacity: 1000",
		"  user:      {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 1000, limits: {tokens: {capacity: 5000", 1)
	write(second)
	await(t, "the new configuration counts", func() bool { return d.features(t) == "hasty question" })
	a, err := read(res, nil)
	check.OK(t, err)
	c, err := a.completion()
	check.That(t, err == nil && c.done && c.Usage.Output == 100, "the call under way did not end as it began: %v: %s", err, a.body)
	// Of a limit the share that was used is known: it is the same share of the new one.
	if got, want := d.remaining(t, token, "tokens"), 5000-5*(used+c.Usage.Total); got != want {
		t.Errorf("%d tokens remain, want %d", got, want)
	}
	if got := d.must(t, "limits", "123"); !strings.Contains(got, "5,000") && !strings.Contains(got, "5000") {
		t.Errorf("administrators see the old limits: %s", got)
	}
	if a, err := d.ask(t.Context(), token, question{feature: "ask", text: "Go on.", most: 5}); err != nil || a.status != http.StatusNotFound {
		t.Errorf("the old name: %v %d %s", err, a.status, a.body)
	}

	// A mistake, and no file at all, are told, and change nothing.
	write(strings.Replace(second, "features:", "frills: 1\nfeatures:", 1))
	await(t, "the mistake is told", func() bool { return strings.Contains(d.output(), "line 8: frills") })
	check.OK(t, os.Remove(config))
	await(t, "it is told that the file is gone", func() bool {
		return strings.Count(d.output(), "the configuration of before stays: ") == 2
	})
	check.Equal(t, d.features(t), "hasty question", "features")
	write(string(first))
	await(t, "the first configuration counts again", func() bool { return d.features(t) == "ask hasty" })
	check.Equal(t, strings.Count(d.output(), "reloaded "+config), 2, "reloaded … times")
	d.complete(t, token, question{feature: "ask", text: "Go on.", most: 5})
}

// The line that dev prints for a page of elsewhere lets the page call as soon as it stands
// in the configuration.
func TestPrintedOrigin(t *testing.T) {
	t.Parallel()
	config := testConfig(t, 1000)
	d := startDev(t, config)
	status := func() int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/models", http.NoBody)
		check.OK(t, err)
		req.Header.Set("Origin", "https://shop.example.com")
		a, err := read(do(req, ""))
		check.OK(t, err)
		return a.status
	}
	got := status()
	check.Must(t, got == http.StatusForbidden, "status %d", got)
	line := regexp.MustCompile(`(?m)^cors: .*$`)
	await(t, "the line is printed", func() bool { return line.MatchString(d.output()) })
	text, err := os.ReadFile(config)
	check.OK(t, err)
	check.OK(t, os.WriteFile(config, append(text, line.FindString(d.output())+"\n"...), 0o600))
	await(t, "the page may call", func() bool { return status() == http.StatusOK })
}
