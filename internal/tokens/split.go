package tokens

import (
	_ "embed"
	"strings"
	"unicode/utf8"
)

// Before any merging, an encoding splits the text into pieces with a regular
// expression; no token reaches across two pieces. The functions here do what
// tiktoken's expressions do, leftmost alternative first, but each in one pass
// over the piece, where a backtracking engine can be made to take a quadratic
// time. Every function gives a length in bytes, 0 where nothing matches.

// class is what a character is to the expressions; a set of classes is their
// union.
type class uint8

const (
	upperLetter class = 1 << iota // \p{Lu}\p{Lt}
	lowerLetter                   // \p{Ll}
	otherLetter                   // \p{Lm}\p{Lo}
	mark                          // \p{M}
	number                        // \p{N}
	space                         // \s but for those of newline
	newline                       // \r\n
	other
)

const (
	letter     = upperLetter | lowerLetter | otherLetter // \p{L}
	upper      = upperLetter | otherLetter | mark        // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower      = lowerLetter | otherLetter | mark        // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	whitespace = space | newline                         // \s
	symbol     = ^(whitespace | letter | number)         // [^\s\p{L}\p{N}]
	prefix     = ^(newline | letter | number)            // [^\r\n\p{L}\p{N}]
)

// splitO200k gives the length of the first piece of s, which must not be empty,
// in o200k_base.
func splitO200k(s string) int {
	// [^\r\n\p{L}\p{N}]?[upper]*[lower]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
	// [^\r\n\p{L}\p{N}]?[upper]+[lower]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
	//
	// A mark may be the prefix or the first of a word, so that each is tried
	// with the prefix and then without.
	first := optional(s, prefix)
	end := lowerWord(s, first)
	if end == 0 && first > 0 {
		end = lowerWord(s, 0)
	}
	if end == 0 {
		end = upperWord(s, first)
	}
	if end == 0 && first > 0 {
		end = upperWord(s, 0)
	}
	if end > 0 {
		return end + contraction(s[end:])
	}
	if end := digits(s); end > 0 {
		return end
	}
	if end := symbols(s); end > 0 { // then [\r\n/]*
		for end < len(s) && (s[end] == '\r' || s[end] == '\n' || s[end] == '/') {
			end++
		}
		return end
	}
	return spaces(s)
}

// splitCL100k gives the length of the first piece of s, which must not be
// empty, in cl100k_base.
func splitCL100k(s string) int {
	if end := contraction(s); end > 0 {
		return end
	}
	// [^\r\n\p{L}\p{N}]?\p{L}+
	first := optional(s, prefix)
	if end := span(s, first, letter); end > first {
		return end
	}
	if end := digits(s); end > 0 {
		return end
	}
	if end := symbols(s); end > 0 { // then [\r\n]*
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	return spaces(s)
}

// lowerWord matches [upper]*[lower]+ from start and gives its end.
func lowerWord(s string, start int) int {
	end := span(s, start, upper)
	if longer := span(s, end, lower); longer > end {
		return longer
	}
	// [upper]* took all. It gives back until [lower] has one character.
	for end > start {
		r, n := utf8.DecodeLastRuneInString(s[start:end])
		if classOf(r)&lower != 0 {
			return end
		}
		end -= n
	}
	return 0
}

// upperWord matches [upper]+[lower]* from start and gives its end.
func upperWord(s string, start int) int {
	end := span(s, start, upper)
	if end == start {
		return 0
	}
	return span(s, end, lower)
}

// contraction matches (?i:'s|'t|'re|'ve|'m|'ll|'d).
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] {
	case 's', 'S', 't', 'T', 'm', 'M', 'd', 'D':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	switch s[1:3] {
	case "re", "rE", "Re", "RE", "ve", "vE", "Ve", "VE", "ll", "lL", "Ll", "LL",
		"\u017f": // the long s is an s to (?i:)
		return 3
	}
	return 0
}

// digits matches \p{N}{1,3}.
func digits(s string) int {
	end := optional(s, number)
	end += optional(s[end:], number)
	return end + optional(s[end:], number)
}

// symbols matches " ?[^\s\p{L}\p{N}]+".
func symbols(s string) int {
	first := 0
	if s[0] == ' ' {
		first = 1
	}
	if end := span(s, first, symbol); end > first {
		return end
	}
	return 0
}

// spaces matches \s*[\r\n]+|\s+(?!\S)|\s+. The look-ahead leaves the last space
// of several to the word that follows.
func spaces(s string) int {
	end := span(s, 0, whitespace)
	if last := strings.LastIndexAny(s[:end], "\r\n"); last >= 0 {
		return last + 1
	}
	if end == len(s) {
		return end
	}
	_, last := utf8.DecodeLastRuneInString(s[:end])
	if last == end {
		return end
	}
	return end - last
}

// optional matches one character of the set at the start of s.
func optional(s string, set class) int {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 || classOf(r)&set == 0 {
		return 0
	}
	return n
}

// span gives the end of the run of characters of the set that begins at start.
func span(s string, start int, set class) int {
	for start < len(s) {
		if c := s[start]; c < utf8.RuneSelf {
			if classOf(rune(c))&set == 0 {
				break
			}
			start++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[start:])
		if classOf(r)&set == 0 {
			break
		}
		start += n
	}
	return start
}

// classes holds, for each block of 256 code points, the number of its page, and
// then the pages: the class of each code point of the block.
//
//go:embed unicode16.bin
var classes string

const blocks = (utf8.MaxRune + 1) / 256

// classOf gives the class of r, by Unicode 16.0, whatever version Go itself is
// at: it is part of the encoding.
func classOf(r rune) class {
	page := int(classes[r>>8])
	return class(classes[blocks+page<<8+int(r&0xff)])
}
