package count

import (
	"encoding/json"
	"strings"
)

// The schema of a tool is read many times for one that is written, so that it is read in
// one pass here, without an allocation. What is no JSON is told apart from what is, but
// nothing more is checked: whoever parses requests has done so.

// deepest is how deep values may be nested within each other.
const deepest = 64

// members gives each member of the object s to f: the name as it is written between its
// quotes, and the value with nothing around it. None, if s is no object.
func members(s string, f func(name, value string)) { each(s, '{', f) }

// elements gives each element of the array s to f. It reports whether s is an array.
func elements(s string, f func(value string)) bool {
	return each(s, '[', func(_, value string) { f(value) })
}

func each(s string, open byte, f func(name, value string)) bool {
	i := blank(s, 0)
	if i == len(s) || s[i] != open {
		return false
	}
	for first := true; ; first = false {
		i = blank(s, i+1)
		if first && i < len(s) && s[i] == open+2 { // ] and } stand two places after [ and {
			return blank(s, i+1) == len(s)
		}
		name := ""
		if open == '{' {
			end := value(s, i, 0)
			if end == 0 || s[i] != '"' {
				return false
			}
			name = s[i+1 : end-1]
			if i = blank(s, end); i == len(s) || s[i] != ':' {
				return false
			}
			i = blank(s, i+1)
		}
		end := value(s, i, 0)
		if end == 0 {
			return false
		}
		f(name, s[i:end])
		if i = blank(s, end); i == len(s) {
			return false
		}
		switch s[i] {
		case ',':
		case open + 2:
			return blank(s, i+1) == len(s)
		default:
			return false
		}
	}
}

// value gives the end of the value of s that begins at i, 0 if there is none.
func value(s string, i, depth int) int {
	if i >= len(s) || depth > deepest {
		return 0
	}
	switch open := s[i]; open {
	case '"':
		for i++; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return 0
	case '{', '[':
		if i = blank(s, i+1); i < len(s) && s[i] == open+2 {
			return i + 1
		}
		for i < len(s) {
			end := value(s, i, depth+1)
			if end == 0 {
				return 0
			}
			if i = blank(s, end); i == len(s) {
				return 0
			}
			switch s[i] {
			case open + 2:
				return i + 1
			case ',', ':':
				i = blank(s, i+1)
			default:
				return 0
			}
		}
		return 0
	}
	start := i
	for i < len(s) && strings.IndexByte(",:]} \t\r\n\"[{", s[i]) < 0 {
		i++
	}
	if i == start {
		return 0
	}
	return i
}

// blank gives the end of the white space of s that begins at i.
func blank(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}

// text gives the text that the string s of JSON stands for, "" if it is none.
func text(s string) string {
	switch {
	case len(s) < 2 || s[0] != '"':
		return ""
	case strings.IndexByte(s, '\\') < 0:
		return s[1 : len(s)-1]
	}
	var t string
	if json.Unmarshal([]byte(s), &t) != nil {
		return s
	}
	return t
}
