package environ

import (
	"io"
	"log/slog"
	"strings"
)

const (
	// maxLogged bounds a text in the log, in bytes. Whoever could choose how much is logged
	// would choose what the log costs.
	maxLogged = 512
	// maxStack bounds the stack of a panic, which is ours, but deep.
	maxStack = 4096
)

// NewLog makes a log of JSON lines whose texts are clipped, whatever they are: errors of
// others, names that callers chose.
func NewLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: clipped}))
}

// whole is a text that is not clipped.
type whole string

func clipped(_ []string, a slog.Attr) slog.Attr {
	var text string
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		err, ok := a.Value.Any().(error)
		if !ok {
			return a
		}
		text = err.Error()
	default:
		return a
	}
	longest := maxLogged
	if a.Key == "stack" {
		longest = maxStack
	}
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	a.Value = slog.StringValue(text)
	return a
}
