package upstream

import (
	"os/exec"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// OpenAI's own client understands the stand-in as it understands OpenAI.
func TestOpenAIClient(t *testing.T) {
	_, url := serve(t, Options{})
	got, err := exec.CommandContext(t.Context(), "node", "testdata/client.mjs", url, "any", "m", "text-embedding-3-small").CombinedOutput()
	check.Must(t, err == nil, "%v\n%s", err, got)
	check.Equal(t, string(got), `runTools [{"city":"text"}] true true
stream [[0,"get_weather","{\"city\":\"text\"}"],[1,"get_weather","{\"city\":\"text\"}"]] tool_calls 2
forced null {"city":"text"} stop
image true 96
embeddings 3 256 true true
reasoning true true
`, "what it prints")
}
