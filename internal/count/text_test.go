package count

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// With an exact tokenizer a text costs what OpenAI bills; without one, no less than any
// tokenizer makes of it and puts around it.
func TestText(t *testing.T) {
	t.Parallel()
	cl100k, err := tokens.New("cl100k_base")
	check.OK(t, err)
	o200k, err := tokens.New("o200k_base")
	check.OK(t, err)
	exact, bound := Model{Tokenizer: cl100k}, Model{Tokenizer: tokens.UpperBound()}
	check.Equal(t, exact.Text("A token bucket holds tokens."), 6, "by cl100k_base")
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"fuse", " ", "\n", "ä", "数", "🙂", "\u202e", "1", "<|endoftext|>", "e\u0301", "\x00", "don't", "        "}
	for range 3000 {
		var text strings.Builder
		for range 1 + random.IntN(12) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		s := text.String()
		most := int64(max(cl100k.Count(s), o200k.Count(s)) + 2) // with the marks of its ends
		check.That(t, bound.Text(s) >= most && exact.Text(s) == int64(cl100k.Count(s)), "%q: %d, of %d", s, bound.Text(s), most)
	}
}
