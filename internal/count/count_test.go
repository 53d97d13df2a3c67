package count

import (
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestImages(t *testing.T) {
	t.Parallel()
	i := Images{Low: 85, High: 1445}
	check.Equal(t, i.Of(openai.Image{Detail: "low", Width: 10, Height: 10}), 85, "at low detail")
	check.Equal(t, i.Of(openai.Image{Detail: "auto"}), 1445, "at any other")
	check.Equal(t, i.Dearest(), 1445, "at most")
	for _, name := range ImageRules() {
		r := Images{Rule: name}
		for _, detail := range []string{"", "low", "high", "auto"} {
			check.That(t, r.Of(openai.Image{Detail: detail}) <= r.Dearest(), "%s: detail %q costs more than the dearest", name, detail)
		}
	}
}
