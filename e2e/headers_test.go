package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// limitsWithOpenAI prints what OpenAI's client has of the limits at the end of a stream.
const limitsWithOpenAI = `
import OpenAI from 'openai';
const client = new OpenAI({ baseURL: process.env.URL + '/v1', apiKey: process.env.TOKEN });
const stream = await client.chat.completions.create({ model: 'cv', stream: true, messages: [{ role: 'user', content: 'Hi' }] });
let limits;
for await (const chunk of stream) limits = chunk.limits ?? limits;
console.log(JSON.stringify(limits));`

// What is left is told with every answer, and by the last chunk to OpenAI's client. A 429
// tells of all limits what a 200 does.
func TestWhatIsLeftIsTold(t *testing.T) {
	t.Parallel()
	eachWay(t, testConfig(t, 10_000), whatIsLeftIsTold)
}

func whatIsLeftIsTold(t *testing.T, d *dev) {
	token := d.token(t, "ann")
	ask := func(want int) answer {
		t.Helper()
		a := d.mustAsk(t, token, question{feature: "cv", text: "Hi", most: 100})
		check.Must(t, a.status == want, "%d %s", a.status, a.body)
		return a
	}
	told := func(a answer) {
		t.Helper()
		left := d.left(t, "ann")
		for _, limit := range []string{"tokens", "cv"} {
			want := fmt.Sprintf(`"%s";r=%d;t=[1-9]`, limit, left[limit])
			check.That(t, regexp.MustCompile(want).MatchString(a.header.Get("RateLimit")), "RateLimit is %q, want %s", a.header.Get("RateLimit"), want)
		}
	}
	told(ask(http.StatusOK))
	got := run(t, []string{"URL=" + d.url, "TOKEN=" + token}, "node", "--input-type=module", "--eval", limitsWithOpenAI)
	var limits []struct {
		Name      string
		Remaining int
	}
	err := json.Unmarshal([]byte(got.stdout), &limits)
	check.Must(t, err == nil && len(limits) == 2, "%v: %+v", err, got)
	left := d.left(t, "ann")
	for _, l := range limits {
		check.Equal(t, l.Remaining, left[l.Name], "the last chunk says that … %s are left, %v are", l.Name, left)
	}
	told(ask(http.StatusOK))
	told(ask(http.StatusTooManyRequests))
}
