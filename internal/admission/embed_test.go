package admission

import (
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Texts are counted exactly where that is known, else from above, each with what may stand
// around it. There is no output, and what is reported may be as much as all of them hold.
func TestTexts(t *testing.T) {
	t.Parallel()
	for feature, want := range map[string]int64{"vectors": 2 + 1, "e5": (8 + 8) + (1 + 8)} { // tokens of cl100k_base; bytes
		g := newRig(t)
		ann := g.user("ann")
		o, _ := g.Offer(ann, feature)
		c, refusal := o.Cap(Prompt{Inputs: []string{"hi there", "a"}})
		check.Must(t, refusal == nil, "%s: %+v", feature, refusal)
		check.Equal(t, c.Worst, Amount{Tokens: want, Money: 20_000 * price.Pico(want), Results: 1}, "%s: worst case", feature)
		check.That(t, len(c.Inputs) == 2 && c.MaxOutput == 0, "%s: %+v", feature, c)
		c.End = time.Now().Add(time.Minute)
		a, refusal := g.Admit(t.Context(), ann, c)
		check.Must(t, refusal == nil, "%s: %+v", feature, refusal)
		m := a.Meter(t.Context(), o.Candidates[0])
		m.Embedded(&price.Usage{Input: 201}, false)
		check.That(t, m.Usage == nil && !m.Text && !m.Finished, "%s: more than two contexts of 100 is believed: %+v", feature, m.Tally)
		m.Embedded(&price.Usage{Input: 200}, true)
		m.Ending = Completed
		b := a.Settle(t.Context(), m.Tally)
		check.Equal(t, b.Caller, Amount{Tokens: 200, Money: 4_000_000, Results: 1}, "%s: bill", feature)
	}
}
