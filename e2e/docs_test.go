//go:build curl

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const documentedURL = "http://127.0.0.1:8787"

// What the README shows is what happens, with the configuration that comes with
// the project.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	check.OK(t, err)
	commands := consoleCommands(string(text))
	check.Must(t, len(commands) != 0, "README.md shows no commands: see the form in console_test.go")
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
		check.That(t, strings.Contains(all, want), "no %s in what the commands print", want)
	}
	check.That(t, len(commands) == 7 && !strings.Contains(all, `"error"`), "%+v\n%s", commands, all)
}
