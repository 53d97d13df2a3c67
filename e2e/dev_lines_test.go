package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The lines for a shell work as they are printed, whatever its environment has.
func TestPrintedLines(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config   string
		features string // by OpenAI's client
	}{
		"with users":    {"tokenfuse.yaml", "cv,docqa,linkedin"},
		"without users": {writeConfig(t, anonymousConfig), "ask"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDev(t, test.config)
			var lines []string
			for _, start := range []string{"  export OPENAI_BASE_URL=", "  AWS_PROFILE="} {
				line := regexp.MustCompile("(?m)^" + start + ".*$").FindString(d.output())
				check.Must(t, line != "", "dev prints no line that begins with %q", start)
				lines = append(lines, line)
			}
			env := []string{"AWS_PROFILE=other", "AWS_SESSION_TOKEN=other", "AWS_REGION=eu-central-1", "OPENAI_API_KEY=sk-other", "TOKENFUSE_ENDPOINT=http://127.0.0.1:1"}
			const list = `
node --input-type=module -e '
import OpenAI from "openai";
const ids = [];
for await (const m of new OpenAI().models.list()) ids.push(m.id);
console.log(ids.sort().join());'`
			got := run(t, env, "sh", "-ec", strings.Join(lines, "\n")+list)
			check.That(t, got.code == 0 && strings.HasSuffix(got.stdout, "\n"+test.features+"\n") && strings.Contains(got.stdout, "closed"), "%+v", got)
		})
	}
}

// A key of the environment is not used if nobody is to be asked.
func TestFakeProvider(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(binary, "dev", "--listen", "127.0.0.1:0", "--config", testConfig(t, 1000), "--fake-provider")
	cmd.Env = []string{"E2E_NO_SUCH_KEY=sk-a-key-of-a-provider"} // the providers of this configuration cannot be reached
	d := follow(t, cmd)
	d.complete(t, "", question{feature: "ask", text: "Go on.", most: 20})
	check.That(t, strings.Contains(d.output(), "main: built-in, as --fake-provider says"), "it is not told")
}
