package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestComplete(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"":                            "audit block check clear-limit completion dev exposure fuse limits prices schema serve status token unblock",
		"fu":                          "fuse",
		"fuse ":                       "set show",
		"fuse set ":                   "anonymous_off challenge closed open",
		"fuse set op":                 "open",
		"fuse set open ":              "",
		"fuse set --for 1h c":         "challenge closed",
		"fuse set --for ":             "",
		"fuse set --json c":           "challenge closed",
		"block --f":                   "--for",
		"--v":                         "--version",
		"completion ":                 "bash fish zsh",
		"nothing of the kind --jso":   "--json",
		"limits --endpoint http://x ": "",
	} {
		got := command(t, append([]string{completing}, strings.Split(words, " ")...)...)
		check.That(t, got.code == 0 && got.stderr == "", "%q: %+v", words, got)
		check.Equal(t, strings.Join(strings.Fields(got.stdout), " "), want, "%q", words)
	}
}

// Each script is what its shell takes, where that is installed; bash always is.
func TestCompletionInShells(t *testing.T) {
	t.Parallel()
	fake := t.TempDir() // a tokenfuse that says what it was asked
	check.OK(t, os.WriteFile(filepath.Join(fake, "tokenfuse"), []byte("#!/bin/sh\nprintf '%s.' \"$@\"; echo; echo second word\n"), 0o700))
	for shell, ask := range map[string]string{
		"bash": `COMP_WORDS=(tokenfuse fuse set ""); COMP_CWORD=3; _tokenfuse; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh":  `compdef() { :; }; compadd() { print -l "${(@P)2}"; }; eval "$SCRIPT"; words=(tokenfuse fuse set ""); CURRENT=4; _tokenfuse`,
		"fish": `complete -C "tokenfuse fuse set "`,
	} {
		script := command(t, "completion", shell)
		check.That(t, script.code == 0 && script.stderr == "" && strings.Contains(script.stdout, completing), "%+v", script)
		if _, err := exec.LookPath(shell); err != nil && shell != "bash" {
			continue
		}
		if shell != "zsh" {
			ask = script.stdout + ask
		}
		run := exec.CommandContext(t.Context(), shell, "-c", ask)
		run.Env = append(os.Environ(), "PATH="+fake+":"+os.Getenv("PATH"), "SCRIPT="+script.stdout)
		out, err := run.CombinedOutput()
		check.That(t, err == nil && strings.HasPrefix(string(out), "__complete.fuse.set..\nsecond word"), "%s: %v\n%s", shell, err, out)
	}
}
