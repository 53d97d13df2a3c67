//go:build curl

package e2e

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// command is a shell command of a document and the output shown for it.
//
// Documents show commands in fenced blocks of kind console:
//
//	```console
//	$ curl -s http://127.0.0.1:8787/v1/models
//	{"object":"list",…}
//	```
//
// A line that begins with "$ " is a command; it goes on in the next line if it
// ends in a backslash. The other lines are the command's whole standard output:
// … stands for any text within a line, and alone on a line for any lines, or
// none. A line that begins with two spaces goes on, without them, what the line above
// shows: lines of output may be too long for a document. Blocks of other kinds are
// only shown.
type command struct {
	line int // where it stands, 1-based
	text string
	want []string
}

// consoleCommands finds the commands of a Markdown document, in order.
func consoleCommands(markdown string) []command {
	var commands []command
	inside, goesOn := false, false
	for i, line := range strings.Split(markdown, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside, goesOn = strings.TrimSpace(line) == "```console", false
			continue
		case !inside:
			continue
		case goesOn:
			commands[len(commands)-1].text += "\n" + line
		case strings.HasPrefix(line, "$ "):
			commands = append(commands, command{line: i + 1, text: line[2:]})
		case len(commands) > 0:
			last := &commands[len(commands)-1]
			if more, ok := strings.CutPrefix(line, "  "); ok && len(last.want) > 0 {
				last.want[len(last.want)-1] += more
			} else {
				last.want = append(last.want, line)
			}
			continue
		}
		goesOn = strings.HasSuffix(line, `\`)
	}
	return commands
}

// shows reports whether got is what a document shows.
func shows(want []string, got string) bool {
	got = strings.TrimRight(strings.ReplaceAll(got, "\r", ""), "\n")
	if got == "" {
		return linesMatch(want, nil)
	}
	return linesMatch(want, strings.Split(got, "\n"))
}

func linesMatch(want, got []string) bool {
	switch {
	case len(want) == 0:
		return len(got) == 0
	case want[0] == "…":
		return linesMatch(want[1:], got) || len(got) > 0 && linesMatch(want, got[1:])
	}
	return len(got) > 0 && lineMatches(want[0], got[0]) && linesMatch(want[1:], got[1:])
}

func lineMatches(want, got string) bool {
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

// runAll runs commands one after the other in one shell, so that what one sets
// the next can use. It gives the standard output of each; they must not fail.
func runAll(t *testing.T, env []string, commands []command) []string {
	t.Helper()
	const separator = "\x1e"
	var script strings.Builder
	for _, c := range commands {
		script.WriteString(c.text + "\nprintf '" + separator + "%s" + separator + "' $?\n")
	}
	got := run(t, env, "bash", "-c", script.String())
	parts := strings.Split(got.stdout, separator)
	check.Must(t, len(parts) == 2*len(commands)+1, "the shell stopped early: %s\n%s", got.stdout, got.stderr)
	outputs := make([]string, len(commands))
	for i, c := range commands {
		outputs[i] = parts[2*i]
		if status := parts[2*i+1]; status != "0" {
			t.Errorf("line %d: exit status %s: %s\n%s\n%s", c.line, status, c.text, outputs[i], got.stderr)
		}
	}
	return outputs
}

func TestConsoleCommands(t *testing.T) {
	t.Parallel()
	got := consoleCommands("# Title\n```sh\n$ not this\n```\n```console\n$ one \\\n  more\nout 1\n\nout 2\n$ two\na long\n   line\n```\n$ nor this\n```console\n$ three\n…\n```\n")
	want := []command{
		{6, "one \\\n  more", []string{"out 1", "", "out 2"}},
		{11, "two", []string{"a long line"}},
		{17, "three", []string{"…"}},
	}
	check.That(t, slices.EqualFunc(got, want, func(a, b command) bool {
		return a.line == b.line && a.text == b.text && slices.Equal(a.want, b.want)
	}), "got %+v", got)
}

func TestShows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want, got string
		shows     bool
	}{
		{"", "", true},
		{"", "\n", true},
		{"", "more", false},
		{"same", "same", true},
		{"same", "same\n", true},
		{"same", "same\nmore", false},
		{"a…z", "abcz", true},
		{"a…z", "az", true},
		{"a…z", "a\nz", false},
		{"a…", "a.b", true},
		{"a.…", "ab", false},
		{"a\n…\nz", "a\nb\nc\nz", true},
		{"a\n…\nz", "a\nz", true},
		{"a\n…\nz", "a\nb", false},
		{"…", "", true},
		{"…\nz", "a\nz\nz", true},
		{"HTTP/1.1 200 OK", "HTTP/1.1 200 OK\r\n", true},
	} {
		var want []string
		if test.want != "" {
			want = strings.Split(test.want, "\n")
		}
		if got := shows(want, test.got); got != test.shows {
			t.Errorf("%q shows %q: %v", test.want, cmp.Or(test.got, "nothing"), got)
		}
	}
}
