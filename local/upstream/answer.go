package upstream

import (
	"fmt"
	"regexp"
	"strconv"
)

// markers is what the last user message asks for beside an answer.
type markers struct {
	fail              string // "" or what follows fail:
	long              bool
	cached, reasoning int // tokens
}

var markerPattern = regexp.MustCompile(`\[\[(?:fail:(500|429|timeout|cut|nousage|empty)|(long)|cached:(\d{1,9})|reasoning:(\d{1,9}))\]\]`)

// readMarkers finds the markers in text. Of several of one kind the last counts.
func readMarkers(text string) markers {
	var m markers
	for _, found := range markerPattern.FindAllStringSubmatch(text, -1) {
		switch {
		case found[1] != "":
			m.fail = found[1]
		case found[2] != "":
			m.long = true
		case found[3] != "":
			m.cached, _ = strconv.Atoi(found[3])
		default:
			m.reasoning, _ = strconv.Atoi(found[4])
		}
	}
	return m
}

// answer is what the made-up model says.
type answer struct {
	tokens    []string // together the text
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

// compose makes the answer to req, within its cap. It depends on nothing else.
func compose(req *request, prompt int, m markers) answer {
	most := req.maxOutputTokens()
	a := answer{reasoning: min(m.reasoning, most), finish: "stop"}
	room := most - a.reasoning
	a.tokens = splitPattern.FindAllString(fmt.Sprintf(shortText, len(req.Messages), prompt, most), -1)
	if m.long {
		more := splitPattern.FindAllString(longText, -1)
		for len(a.tokens) <= room {
			a.tokens = append(a.tokens, more...)
		}
	}
	if len(a.tokens) > room {
		a.tokens, a.finish = a.tokens[:room], "length"
	}
	return a
}
