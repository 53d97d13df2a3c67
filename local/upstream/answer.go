package upstream

import (
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// markers is what the last user message asks for beside an answer.
type markers struct {
	fail                            string // "" or what follows fail:
	long, billed                    bool
	cached, reasoning, over, report int // tokens; 0: not asked for
}

var markerPattern = regexp.MustCompile(`\[\[(?:fail:([45]\d\d|timeout|stall|cut|error|nofinish|nousage|empty)|(long|billed)|(cached|reasoning|over|usage):(\d{1,9}))\]\]`)

// readMarkers finds the markers in text. Of several of one kind the last counts.
func readMarkers(text string) markers {
	var m markers
	for _, found := range markerPattern.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(found[4])
		switch found[2] + found[3] {
		case "":
			m.fail = found[1]
		case "long":
			m.long = true
		case "billed":
			m.billed = true
		case "cached":
			m.cached = n
		case "reasoning":
			m.reasoning = n
		case "over":
			m.over = min(n, maxOutput)
		case "usage":
			m.report = n
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
	tokens    []string // together the text
	sent      int      // so many of them are streamed
	reasoning int      // tokens spent before it
	finish    string   // finish_reason
}

// The texts are made of words and signs that are each one token of o200k_base,
// and splitPattern splits them as its own pattern does.
const (
	shortText = "This is the built-in upstream, which stands in for a model provider. No model was asked and no money was spent. " +
		"Your request came with these numbers: messages %d, input tokens %d, output tokens at most %d. " +
		"Set the key of the provider to get real answers."
	longText = " It goes on, since a long answer was asked for, and only the limit of the output can end it."
)

var splitPattern = regexp.MustCompile(`[ -]?[A-Za-z]+|[0-9]{1,3}|[,.:]| `)

// compose makes the answer to req, within its cap unless a marker says that it is
// ignored. It depends on nothing else.
func (u *Upstream) compose(req *request, prompt int, m markers) answer {
	most := req.maxOutputTokens()
	if m.over > 0 {
		most, m.long = m.over, true
	}
	a := answer{reasoning: min(m.reasoning, most), finish: "stop"}
	room := most - a.reasoning
	if req.json != "" && !m.long {
		u.composeJSON(&a, req.json, room)
	} else {
		a.tokens = splitPattern.FindAllString(fmt.Sprintf(shortText, len(req.Messages), prompt, most), -1)
	}
	if m.long {
		more := splitPattern.FindAllString(longText, -1)
		for len(a.tokens) <= room {
			a.tokens = append(a.tokens, more...)
		}
	}
	if len(a.tokens) > room {
		a.tokens, a.finish = a.tokens[:room], "length"
	}
	switch m.fail {
	case "cut", "stall", "error":
		a.sent = min(len(a.tokens), max(3, len(a.tokens)/2))
	default:
		a.sent = len(a.tokens)
	}
	if m.fail == "error" {
		a.tokens, a.finish = a.tokens[:a.sent], "error"
	}
	return a
}

// composeJSON makes an answer of any text, within room. Its pieces are as many as its
// tokens, but are cut where they come out even: what is billed is exact.
func (u *Upstream) composeJSON(a *answer, text string, room int) {
	if u.tokenizer.Count(text) > room {
		text, a.finish = u.tokenizer.Cut(text, room), "length"
	}
	n := u.tokenizer.Count(text)
	from := 0
	for i := range n {
		to := len(text) * (i + 1) / n
		for to < len(text) && !utf8.RuneStart(text[to]) {
			to++
		}
		a.tokens = append(a.tokens, text[from:to])
		from = to
	}
}
