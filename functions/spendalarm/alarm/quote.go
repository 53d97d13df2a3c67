package alarm

import (
	"fmt"
	"strings"
)

// quote makes s one word of a shell (bash or zsh) and one line of ASCII, whatever is
// in it: plain words as they are, printable text in '...', anything else in $'...'.
func quote(s string) string {
	plain, printable := s != "", true
	for i := range len(s) {
		c := s[i]
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("@%+:,./_-", c) >= 0)
		printable = printable && c >= ' ' && c <= '~'
	}
	switch {
	case plain:
		return s
	case printable:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= ' ' && c <= '~':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\%03o`, c) // octal has a fixed length, so that what follows is not taken for a digit
		}
	}
	return b.String() + "'"
}
