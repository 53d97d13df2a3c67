package upstream

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// callCost is what a call costs beside its name and arguments, in output tokens. OpenAI's
// documentation shows a call of get_current_weather that took 17, of which 13 are those.
const callCost = 4

// leastWord is the length from which on a word of a tool's name calls it, in letters:
// shorter ones, such as "get", are in too many texts.
const leastWord = 4

// called are the tools that the model calls.
func (r *request) called(m markers) []*tool {
	if len(r.Tools) == 0 || r.choice.mode == "none" {
		return nil
	}
	if r.choice.mode == "" {
		return []*tool{r.tool(r.choice.name)}
	}
	required, before := r.choice.mode == "required", r.calledBefore()
	if required && len(before) > 0 {
		return []*tool{r.next(before)}
	}
	last := r.Messages[len(r.Messages)-1].Role
	if !required && last != "user" && (last != "tool" || len(before) >= m.rounds) {
		return nil
	}
	called := r.asked(m)
	if len(called) == 0 && required {
		called = []*tool{&r.Tools[0]}
	}
	if r.ParallelToolCalls != nil && !*r.ParallelToolCalls && len(called) > 1 {
		called = called[:1]
	}
	return called
}

// asked are the tools that the last user message asks for, by markers or by its words.
func (r *request) asked(m markers) (called []*tool) {
	for _, name := range m.tools {
		if t := r.tool(name); t != nil {
			called = append(called, t)
		}
	}
	for i := range m.calls {
		called = append(called, &r.Tools[i%len(r.Tools)])
	}
	if len(called) > 0 {
		return called
	}
	said := wordsIn(r.lastUserText())
	if i := slices.IndexFunc(r.Tools, func(t tool) bool { return t.isNamed(said) }); i >= 0 {
		return []*tool{&r.Tools[i]}
	}
	return nil
}

// calledBefore has, for each message that has called tools since the user's last one,
// the names of these tools.
func (r *request) calledBefore() (rounds [][]string) {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			break
		}
		if len(m.calls) == 0 {
			continue
		}
		var names []string
		for _, c := range m.calls {
			names = append(names, c.Function.Name)
		}
		rounds = append(rounds, names)
	}
	return rounds
}

// next is the first tool that was not called before, or the last one. Whoever requires
// calls all the way ends by such a tool: it is the answer.
func (r *request) next(before [][]string) *tool {
	all := slices.Concat(before...)
	for i := range r.Tools {
		if !slices.Contains(all, r.Tools[i].Function.Name) {
			return &r.Tools[i]
		}
	}
	return &r.Tools[len(r.Tools)-1]
}

// isNamed reports whether words have the name of the tool in them, or one of its words.
func (t *tool) isNamed(said []string) bool {
	name := wordsIn(t.Function.Name)
	for i := range said {
		if i+len(name) <= len(said) && slices.Equal(said[i:i+len(name)], name) {
			return true
		}
		if len(said[i]) >= leastWord && slices.Contains(name, said[i]) {
			return true
		}
	}
	return false
}

var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// wordsIn gives the words of a text or a name, in lower case.
func wordsIn(text string) []string {
	text = strings.ToLower(camel.ReplaceAllString(text, "$1 $2"))
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// callTools makes an answer of calls. Whoever forces a call pays for its arguments alone,
// as the model did not write more.
func (u *Upstream) callTools(a *answer, called []*tool, forced bool, m markers, room int, id string) {
	if a.finish = "tool_calls"; forced {
		a.finish = "stop"
	}
	if m.aloud {
		texts := words(aloudText)
		a.say(texts[:min(room, len(texts))])
		if room -= len(texts); room < 0 {
			a.finish = "length"
			return
		}
	}
	for i, t := range called {
		cost := callCost + u.tokenizer.Count(t.Function.Name)
		if forced {
			cost = 0
		}
		if cost > room { // it ends before there is anything to tell
			a.pieces, a.finish = append(a.pieces, piece{cost: room}), "length"
			return
		}
		a.pieces = append(a.pieces, piece{cost: cost, call: &toolCall{
			Index: ptr(i), ID: fmt.Sprintf("call_%s%03d", id, i), Type: "function", Function: functionCall{Name: t.Function.Name},
		}})
		room -= cost
		text := t.arguments
		if m.long {
			text = endless(text)
		}
		texts, whole := u.split(text, room)
		if m.long && whole {
			texts = goOn(texts, room)[:room]
		}
		a.say(texts)
		if room -= len(texts); m.long || !whole {
			a.finish = "length"
			return
		}
	}
}

// endless opens one more text within the arguments.
func endless(arguments string) string {
	arguments = strings.TrimSuffix(arguments, "}")
	if arguments != "{" {
		arguments += ","
	}
	return arguments + `"more":"`
}

// mostFigures bounds what of the results is told.
const mostFigures = 20

var figure = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// told is what the answer says of the results of tools: a sentence, or nothing.
func told(results []string) string {
	if len(results) == 0 {
		return ""
	}
	figures := figure.FindAllString(strings.Join(results, " "), mostFigures)
	if len(figures) == 0 {
		return "The tools answered without figures. "
	}
	return "The tools answered with these figures: " + strings.Join(figures, ", ") + ". "
}
