package policy

import (
	"regexp"
	"strings"
	"sync"
)

// class is a set of ASCII characters as a regular expression has it in brackets. The file
// is read without expressions, as far as most files go: to compile them was a tenth of the
// start of a function.
type class string

// all reports whether s has characters, and all of them are of the class.
func (c class) all(s string) bool {
	for i := range len(s) {
		if !c.has(s[i]) {
			return false
		}
	}
	return s != ""
}

func (c class) has(b byte) bool {
	for i := 0; i < len(c); i++ {
		first, last := c[i], c[i]
		if i+2 < len(c) && c[i+1] == '-' {
			i += 2
			last = c[i]
		}
		if first <= b && b <= last {
			return true
		}
	}
	return false
}

// pattern is the expression for one or more characters of the class.
func (c class) pattern() string { return "^[" + string(c) + "]+$" }

// rare is an expression that is compiled for a text that has a part without which nothing
// matches.
type rare struct {
	pattern string
	matches func(string) bool
}

func rarely(part, pattern string) rare {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return rare{pattern, func(s string) bool { return strings.Contains(s, part) && compiled().MatchString(s) }}
}
