//go:build curl

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const documentedURL = "http://127.0.0.1:8787"

// What the README shows is what happens, with the configuration that comes with
// the project.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := consoleCommands(string(text))
	if len(commands) == 0 {
		t.Fatal("README.md shows no commands: see the form in console_test.go")
	}
	d := startDev(t, "tokenfuse.yaml")
	for i := range commands {
		commands[i].text = strings.ReplaceAll(commands[i].text, documentedURL, d.url)
	}
	outputs := runAll(t, []string{"TOKENFUSE_URL=" + d.url}, commands)
	for i, c := range commands {
		if got := strings.ReplaceAll(outputs[i], d.url, documentedURL); !shows(c.want, got) {
			t.Errorf("README.md:%d: %s\nshown:\n%s\ngot:\n%s", c.line, c.text, strings.Join(c.want, "\n"), got)
		}
	}
}

// What dev tells to try works as it stands.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	d := startDev(t, "tokenfuse.yaml")
	_, shown, _ := strings.Cut(d.output(), "Try:\n")
	shown, _, _ = strings.Cut(shown, "ready ")
	shown = "```console\n" + strings.ReplaceAll("\n"+shown, "\n  ", "\n$ ") + "```"
	shown = strings.ReplaceAll(shown, "\n$   ", "\n    ") // what goes on a line is indented further
	commands := consoleCommands(shown)
	outputs := runAll(t, nil, commands)
	all := strings.Join(outputs, "\n")
	for _, want := range []string{`"object":"chat.completion"`, `"limits":[`, `PermissionDeniedError: challenge_required`, `data: [DONE]`} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in what the commands print", want)
		}
	}
	if len(commands) != 7 || strings.Contains(all, `"error"`) {
		t.Errorf("%+v\n%s", commands, all)
	}
}
