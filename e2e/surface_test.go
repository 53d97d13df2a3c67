//go:build clients

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const surfaceConfig = `
providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}, timeout: 30s}}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, image_tokens: {low: 85, high: 1445},
          price_per_mtok: {input: "0.40", output: "1.60"}}
  embed: {provider: main, id: test-embedding, kind: embedding, tokenizer: cl100k_base, context: 300000, price_per_mtok: {input: "0.02"}}
features:
  assistant: {model: small, max_output_tokens: 400, allow: [system, response_format, tools, images], reasoning_effort: [low, medium]}
  vectors: {model: embed}
tiers:
  user: {max_input_tokens: 10000, max_output_tokens: 400, max_in_flight: 32, limits: {tokens: {capacity: 10000000, per: 1h}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
`

// Official clients do by the book what they do with tools, images, embeddings and the
// Responses API: surface.mjs and surface.py, in which no line is made for us.
func TestSurface(t *testing.T) {
	d := startDev(t, writeConfig(t, surfaceConfig))
	var picture bytes.Buffer
	check.OK(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 64, 48))))
	input, err := json.Marshal(map[string]string{"url": d.url, "token": d.token(t, "surface"), "image": "data:image/png;base64," + base64.StdEncoding.EncodeToString(picture.Bytes())})
	check.OK(t, err)
	const (
		city    = `{"city":"string","people":true}`
		cityPy  = `{"city":"str","people":"int"}`
		seen    = `{"seen":true}`
		told    = `{"told":true}`
		called  = `{"name":"weather","told":true}`
		vectors = `{"unit":true,"used":true,"vectors":2}`
	)
	// What the Responses API sends in the streamed answer of a text.
	const events = `["response.created","response.in_progress","response.output_item.added","response.content_part.added","response.output_text.delta",` +
		`"response.output_text.done","response.content_part.done","response.output_item.done","response.completed"]`
	chat := map[string]string{
		"tools":      `{"city":"string","finish":"tool_calls","name":"weather","used":true}`,
		"forced":     `{"name":"weather"}`,
		"stream":     `{"city":"string","finish":"tool_calls","name":"weather","pieces":true}`,
		"parse":      city,
		"runTools":   told,
		"image":      seen,
		"embeddings": vectors, "embeddingsShort": `{"size":64,"vectors":1}`,
		"runToolsStreamed": told,
	}
	both := map[string]string{
		"responses":          `{"status":"completed","store":false,"text":true,"used":true}`,
		"responsesStream":    `{"events":` + events + `,"numbered":true,"same":true}`,
		"responsesCut":       `{"reason":"max_output_tokens","status":"incomplete"}`,
		"responsesParse":     city,
		"responsesTools":     `{"city":"string","name":"weather","told":true}`,
		"responsesImage":     seen,
		"responsesReasoning": `{"status":"completed","thought":true}`,
	}
	for name, want := range chat {
		both[name] = want
	}
	chatPy := map[string]string{
		"with_tools": `{"city":"str","finish":"tool_calls","name":"weather","told":true}`,
		"stream":     `{"city":"str","finish":"tool_calls","pieces":true}`,
		"parse":      cityPy, "parse_tools": cityPy, "picture": seen, "embeddings": vectors,
	}
	bothPy := map[string]string{
		"responses":        `{"status":"completed","text":true,"used":true}`,
		"responses_stream": `{"same":true,"status":"completed"}`,
		"responses_parse":  cityPy, "responses_tools": called,
	}
	for name, want := range chatPy {
		bothPy[name] = want
	}
	for name, test := range map[string]struct {
		program, python, openai string
		want                    map[string]string
	}{
		"npm openai 4": {"openai", "", "openai4", both},
		"npm openai 5": {"openai", "", "openai5", both},
		"npm openai 6": {"openai", "", "openai6", both},
		"npm openai 7": {"openai", "", "openai7", both},
		"AI SDK": {"aiSDK", "", "", map[string]string{
			"text": `{"text":true,"used":true}`, "tools": `{"steps":2,"told":true,"used":true}`, "toolsOfChat": `{"steps":2,"told":true,"used":true}`,
			"toolsOfCompatible": `{"steps":2,"told":true,"used":true}`, "image": seen, "object": city, "embedMany": vectors,
			"stored": "Set store to false in your client", "storedNot": `{"text":true}`,
		}},
		"LangChain, npm": {"langchain", "", "", map[string]string{
			"tools": called, "toolsStreamed": called, "toolsOfResponses": called, "toolsOfResponsesStreamed": called, "object": city, "embeddings": `{"unit":true,"vectors":2}`,
		}},
		"PyPI openai 1": {"openai", "openai1", "", bothPy},
		"PyPI openai 2": {"openai", "openai2", "", bothPy},
		"PyPI openai 3": {"openai", "openai3", "", bothPy},
		"LangChain, PyPI": {"langchain", "openai3", "", map[string]string{
			"with_tools": called, "tools_streamed": called, "tools_of_responses": called, "parse": cityPy, "embeddings": `{"unit":true,"vectors":2}`,
		}},
		"instructor":  {"instructor", "openai2", "", map[string]string{"parse": cityPy}},
		"pydantic-ai": {"pydantic_ai", "openai3", "", map[string]string{"parse": cityPy, "tools": told, "tools_of_responses": told}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atWork <- struct{}{}
			defer func() { <-atWork }()
			got := surface(t, test.program, test.python, test.openai, input)
			for of, want := range test.want {
				line, ran := got[of]
				delete(got, of)
				if refused := !strings.HasPrefix(want, "{"); refused {
					check.That(t, ran && strings.Contains(line.Thrown, want), "%s: %s%s, want to be told of %q", of, line.Got, line.Thrown, want)
					continue
				}
				check.That(t, ran && line.Thrown == "" && sameJSON(string(line.Got), want), "%s: %s%s, want %s", of, line.Got, line.Thrown, want)
			}
			check.That(t, len(got) == 0, "nobody has said what is right of %+v", got)
		})
	}
}

// surfaced is what came of a case.
type surfaced struct {
	Case   string
	Got    json.RawMessage
	Thrown string
}

// surface runs a client's cases.
func surface(t *testing.T, program, python, openai string, input []byte) map[string]surfaced {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	file := "surface.mjs"
	if python != "" {
		file = "surface.py"
	}
	text, err := os.ReadFile(filepath.Join(root, "e2e/clients", file))
	check.OK(t, err)
	dir := workplace(t, openai, map[string]string{file: string(text)})
	if openai != "" {
		check.OK(t, os.Symlink(packages("node_modules", "zod"), filepath.Join(dir, "node_modules", "zod")))
	}
	command := []string{newNode(), file, program}
	if python != "" {
		command = []string{packages(python, "bin", "python"), file, program}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, bytes.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	err = cmd.Run()
	check.Must(t, err == nil, "%v: %s\n%s", err, &stdout, &stderr)
	all := map[string]surfaced{}
	for lines := json.NewDecoder(&stdout); lines.More(); {
		var line surfaced
		check.OK(t, lines.Decode(&line))
		all[line.Case] = line
	}
	return all
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
