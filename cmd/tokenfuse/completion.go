package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// completing is what a shell's script calls us with: the words up to the cursor follow.
// So what is completed is what the command knows, and the scripts need no table.
const completing = "__complete"

// completions are the scripts. Where there is no answer, the shells complete files.
var completions = map[string]string{
	"bash": `# Put this into ~/.bashrc: source <(tokenfuse completion bash)
_tokenfuse() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _tokenfuse tokenfuse
`,
	"zsh": `#compdef tokenfuse
# Put this into ~/.zshrc, after compinit: source <(tokenfuse completion zsh)
_tokenfuse() {
  local -a found
  found=(${(f)"$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
compdef _tokenfuse tokenfuse
`,
	"fish": `# Put this into ~/.config/fish/config.fish: tokenfuse completion fish | source
complete -c tokenfuse -a '(set -l words (commandline -opc) (commandline -ct); $words[1] __complete $words[2..] 2>/dev/null)'
`,
}

func (c *completionCommand) Run(s streams) error {
	if s.json {
		return s.answer(map[string]string{"shell": c.Shell, "script": completions[c.Shell]})
	}
	_, err := fmt.Fprint(s.out, completions[c.Shell])
	return err
}

// complete gives what the last of some words may become, by the commands that the help
// shows: their names, their flags, and the values of those that have a choice.
func complete(at *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	typed := words[len(words)-1]
	var wants *kong.Value // the flag whose value comes next
	arguments := 0
	for _, word := range words[:len(words)-1] {
		switch {
		case wants != nil:
			wants = nil
		case strings.HasPrefix(word, "-"):
			if f := flagNamed(at, word); f != nil && !f.IsBool() {
				wants = f.Value
			}
		default:
			if i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
				at, arguments = at.Children[i], 0
			} else {
				arguments++
			}
		}
	}
	var all []string
	switch {
	case wants != nil:
		all = wants.EnumSlice()
	case strings.HasPrefix(typed, "-"):
		for _, level := range at.AllFlags(true) {
			for _, f := range level {
				all = append(all, "--"+f.Name)
			}
		}
	default:
		for _, n := range at.Children {
			if !n.Hidden {
				all = append(all, n.Name)
			}
		}
		if arguments < len(at.Positional) {
			all = append(all, at.Positional[arguments].EnumSlice()...)
		}
	}
	all = slices.DeleteFunc(all, func(word string) bool { return !strings.HasPrefix(word, typed) })
	slices.Sort(all)
	return slices.Compact(all)
}

// flagNamed is the flag that a word names and whose value the next word is; nil: none.
func flagNamed(at *kong.Node, word string) *kong.Flag {
	for _, level := range at.AllFlags(true) {
		for _, f := range level {
			if word == "--"+f.Name {
				return f
			}
		}
	}
	return nil
}
