package count

import (
	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// asJSON counts a tool whose template is not known. Most print the JSON of the request,
// some with each member on a line of its own, four blanks further in for each level
// (Llama 3.1), some with every letter beyond ASCII escaped.
func (m Model) asJSON(t openai.Tool) int64 {
	n := 0
	for _, s := range []string{t.Name, t.Description} {
		n += m.Tokenizer.Count(s) + escaped(s)
	}
	schema := string(t.Parameters)
	return int64(n + m.Tokenizer.Count(schema) + printed(schema, 3))
}

// printed gives by how many bytes JSON can grow when it is printed: a new line, and
// four blanks for each level, before each member, element and closing bracket, a blank
// after each colon, and escapes. level is how deep it stands already.
func printed(s string, level int) (more int) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted:
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			default:
				more += escape(c)
			}
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			level++
			more += 1 + 4*level
		case c == '}' || c == ']':
			level = max(0, level-1)
			more += 1 + 4*level
		case c == ',':
			more += 1 + 4*level
		case c == ':':
			more++
		}
	}
	return more
}

// escaped gives by how many bytes a text can grow as a string of JSON.
func escaped(s string) (more int) {
	for i := range len(s) {
		if c := s[i]; c == '"' || c == '\\' || c < ' ' {
			more += 5
		} else {
			more += escape(c)
		}
	}
	return more
}

// escape gives by how many bytes a byte can grow in a string: \u003c for one of HTML,
// \u00e9 for a character of two bytes or three, two such for one of four.
func escape(c byte) int {
	switch {
	case c == '<' || c == '>' || c == '&' || c == '\'':
		return 5
	case c >= 0xf0:
		return 8
	case c >= 0xe0:
		return 3
	case c >= 0xc0:
		return 4
	}
	return 0
}
