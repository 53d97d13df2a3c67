package upstream

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// markers is what the last user message asks for beside an answer.
type markers struct {
	fail                            string // "" or what follows fail:
	long, billed, think, aloud      bool
	cached, reasoning, over, report int      // tokens; 0, but of reasoning -1: not asked for
	tools                           []string // names of tools to be called
	calls                           int      // how many tools are to be called; 0: not asked for
	rounds                          int      // how often; 0: once
}

var markerPattern = regexp.MustCompile(`\[\[(?:fail:([45]\d\d|timeout|stall|cut|error|nofinish|nousage|empty)|(long|billed|think|aloud)|(cached|reasoning|over|usage|tools|rounds):(\d{1,9})|tool:([a-zA-Z0-9_-]{1,64}))\]\]`)

// readMarkers finds the markers in text. Of several of one kind the last counts, but
// every tool that is named.
func readMarkers(text string) markers {
	m := markers{reasoning: -1}
	for _, found := range markerPattern.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(found[4])
		switch found[2] + found[3] {
		case "":
			if m.fail = cmp.Or(found[1], m.fail); found[5] != "" {
				m.tools = append(m.tools, found[5])
			}
		case "long":
			m.long = true
		case "billed":
			m.billed = true
		case "think":
			m.think = true
		case "aloud":
			m.aloud = true
		case "cached":
			m.cached = n
		case "reasoning":
			m.reasoning = n
		case "over":
			m.over = min(n, maxOutput)
		case "usage":
			m.report = n
		case "tools":
			m.calls = min(n, maxTools)
		case "rounds":
			m.rounds = n
		}
	}
	return m
}

// status is the error status that is asked for, or 0.
func (m markers) status() int {
	status, _ := strconv.Atoi(m.fail)
	return status
}

// answer is what the made-up model says.
type answer struct {
	pieces    []piece  // one for each token, as a rule
	sent      int      // so many of them are streamed
	reasoning int      // tokens spent before it
	thoughts  []string // these tokens, if they are shown
	finish    string   // finish_reason
}

// piece is a part of an answer, as a stream tells it.
type piece struct {
	cost int // output tokens
	text string
	call *toolCall // begins a call; the texts after it are its arguments
}

// output is what the answer costs, in tokens.
func (a *answer) output() int64 {
	n := a.reasoning
	for _, p := range a.pieces {
		n += p.cost
	}
	return int64(n)
}

// say adds texts of one token each.
func (a *answer) say(texts []string) {
	for _, text := range texts {
		a.pieces = append(a.pieces, piece{cost: 1, text: text})
	}
}

// The texts are made of words and signs that are each one token of o200k_base,
// and splitPattern splits them as its own pattern does.
const (
	shortText = "This is the built-in upstream, which stands in for a model provider. No model was asked and no money was spent. " +
		"Your request came with these numbers: messages %d, input tokens %d, output tokens at most %d. " +
		"%sSet the key of the provider to get real answers."
	longText  = " It goes on, since a long answer was asked for, and only the limit of the output can end it."
	aloudText = "A tool can tell that."
	thought   = " First the question is read once more, and then an answer is made."
)

var splitPattern = regexp.MustCompile(`[ -]?[A-Za-z]+|[0-9]{1,3}|[,.:]| `)

// words splits a text of such words and signs into its tokens.
func words(text string) []string { return splitPattern.FindAllString(text, -1) }

// compose makes the answer to req, within its cap unless a marker says that it is
// ignored. It depends on nothing else. id is that of the answer.
func (u *Upstream) compose(req *request, prompt int, m markers, id string) answer {
	most := req.maxOutputTokens()
	if m.over > 0 {
		most, m.long = m.over, true
	}
	a := answer{reasoning: min(req.reasoning(m), most), finish: "stop"}
	if m.think {
		a.thoughts = repeat(thought, a.reasoning)
	}
	room := most - a.reasoning
	switch called := req.called(m); {
	case len(called) > 0:
		u.callTools(&a, called, req.choice.mode == "", m, room, id)
	case req.json != "" && !m.long:
		texts, whole := u.split(req.json, room)
		if a.say(texts); !whole {
			a.finish = "length"
		}
	default:
		texts := words(fmt.Sprintf(shortText, len(req.Messages), prompt, most, told(req.results())+seen(req.pictures())))
		if m.long {
			texts = goOn(texts, room)
		}
		if len(texts) > room {
			texts, a.finish = texts[:room], "length"
		}
		a.say(texts)
	}
	switch m.fail {
	case "cut", "stall", "error":
		a.sent = min(len(a.pieces), max(3, len(a.pieces)/2))
	default:
		a.sent = len(a.pieces)
	}
	if m.fail == "error" {
		a.pieces, a.finish = a.pieces[:a.sent], "error"
	}
	return a
}

// efforts is what is spent on reasoning, in tokens.
var efforts = map[string]int{"none": 0, "minimal": 0, "low": 8, "medium": 32, "high": 128, "xhigh": 512}

// reasoning is what is spent on it unless the cap is smaller, in tokens.
func (r *request) reasoning(m markers) int {
	switch {
	case m.reasoning >= 0:
		return m.reasoning
	case r.ReasoningEffort != nil:
		return efforts[*r.ReasoningEffort]
	case m.think: // so that there is something to show
		return efforts["low"]
	}
	return 0
}

// goOn adds words until there are more texts than room.
func goOn(texts []string, room int) []string {
	return append(texts, repeat(longText, room+1-len(texts))...)
}

// repeat gives n words of a text, which begins again where it ends.
func repeat(text string, n int) (texts []string) {
	for all := words(text); len(texts) < n; {
		texts = append(texts, all[:min(len(all), n-len(texts))]...)
	}
	return texts
}

// split gives as many pieces of any text as it has tokens, but cut where they come out
// even: what is billed is exact. If the text has more tokens than room, it is not whole.
func (u *Upstream) split(text string, room int) (texts []string, whole bool) {
	n := u.tokenizer.Count(text)
	if whole = n <= room; !whole {
		text = u.tokenizer.Cut(text, room)
		n = u.tokenizer.Count(text)
	}
	from := 0
	for i := range n {
		to := len(text) * (i + 1) / n
		for to < len(text) && !utf8.RuneStart(text[to]) {
			to++
		}
		texts = append(texts, text[from:to])
		from = to
	}
	return texts, whole
}
