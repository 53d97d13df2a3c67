package provider

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// recording is an answer in the shape in which a server gives it, written down by hand from
// what servers send: "Yes, it is.", perhaps after the thought "Hm.", or calls of two tools.
type recording struct {
	name   string // of the file
	body   string
	stream bool
}

func recordings(t testing.TB, of string) []recording {
	files, err := filepath.Glob("testdata/" + of + "/*")
	check.Must(t, err == nil && len(files) >= 15, "%d recordings: %v", len(files), err)
	var all []recording
	for _, file := range files {
		body, err := os.ReadFile(file)
		check.OK(t, err)
		all = append(all, recording{filepath.Base(file), string(body), filepath.Ext(file) == ".sse"})
	}
	return all
}

// dialect is the protocol of a recording. Bedrock's events are written down as others are.
func (r recording) dialect() string {
	if name, _, _ := strings.Cut(r.name, "."); name == "anthropic" || name == "bedrock" {
		return name
	}
	return "openai"
}

func (r recording) provider(t testing.TB) (p Provider) {
	var err error
	switch body := r.body; r.dialect() {
	case "anthropic":
		p, err = NewAnthropic(AnthropicConfig{APIKey: testKey, HTTPClient: canned("", body)})
	case "bedrock":
		if r.stream {
			var frames strings.Builder
			for event := range strings.SplitSeq(strings.ReplaceAll(body, "\r\n", "\n"), "\n\n") {
				name, data, _ := strings.Cut(event, "\ndata: ")
				frames.WriteString(frame("event", strings.TrimPrefix(name, "event: "), data))
			}
			body = frames.String()
		}
		some := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: testKey}, nil
		})
		p, err = NewBedrock(BedrockConfig{Region: "eu-west-1", Credentials: some, HTTPClient: canned("", body)})
	default:
		p, err = NewOpenAI(OpenAIConfig{BaseURL: "http://provider.test", HTTPClient: canned("", body)})
	}
	check.OK(t, err)
	return p
}

// read gives the whole answer in one part, and how it ended.
func (r recording) read(t testing.TB) (Part, error) {
	a, err := r.provider(t).Call(t.Context(), request(r.stream))
	var all Part
	for err == nil {
		var p Part
		p, err = a.Next()
		all.Content, all.Refusal, all.Reasoning = all.Content+p.Content, all.Refusal+p.Refusal, all.Reasoning+p.Reasoning
		all.ToolCalls = append(all.ToolCalls, p.ToolCalls...)
		all.FinishReason += p.FinishReason
		if p.Usage != nil || p.AtLeast != nil {
			all.Usage, all.AtLeast = p.Usage, p.AtLeast
		}
	}
	return all, err
}

// Every server's two calls are the same, but for their ids.
func TestServersThatCall(t *testing.T) {
	for _, r := range recordings(t, "calls") {
		got, err := r.read(t)
		got = joined(t, got)
		for i := range got.ToolCalls {
			got.ToolCalls[i].ID = ""
			got.ToolCalls[i].Arguments = strings.ReplaceAll(got.ToolCalls[i].Arguments, " ", "")
		}
		want := called([3]string{"", "weather", `{"city":"Paris"}`}, [3]string{"", "time", "{}"})
		want.Reasoning, want.Usage = got.Reasoning, &price.Usage{Input: 20, Output: 7}
		check.That(t, err == io.EOF && cmp.Equal(got, want) && got.Reasoning == "" == !strings.Contains(r.body, `"Hm."`), "%s: %v %s", r.name, err, cmp.Diff(want, got))
	}
}

func TestServers(t *testing.T) {
	usual := price.Usage{Input: 20, Output: 7}
	others := map[string]price.Usage{
		"deepseek.sse": {Input: 1000, CachedInput: 900, Output: 10, Reasoning: 3}, "deepseek.json": {Input: 1000, CachedInput: 900, Output: 10, Reasoning: 3},
		"litellm.sse": {Input: 1000, CachedInput: 900, CacheWrite: 50, Output: 10}, "moonshot.sse": {Input: 1000, CachedInput: 900, Output: 10},
		"openrouter.sse": {Input: 20, Output: 7, Reasoning: 2}, "openrouter.json": {Input: 20, Output: 7, Reasoning: 2},
		"qwen.sse": {Input: 20, CacheWrite: 12, Output: 7}, "xai.sse": {Input: 20, CachedInput: 6, Output: 7, Reasoning: 3}, "zhipu.sse": {Input: 20, CachedInput: 4, Output: 7},
	}
	for _, r := range recordings(t, "servers") {
		want, differs := others[r.name]
		if !differs {
			want = usual
		}
		thought := ""
		if strings.Contains(r.body, `"Hm."`) {
			thought = "Hm."
		}
		p, err := r.read(t)
		check.That(t, err == io.EOF && p.Content == "Yes, it is." && p.Reasoning == thought && p.FinishReason == "stop" && p.Usage != nil && *p.Usage == want,
			"%s: %v, %+v, usage %+v, want %+v", r.name, err, p, p.Usage, want)
	}
}

// mutator changes answers by chance, as servers do by mistake.
type mutator struct{ *rand.Rand }

// mutate changes r in one to four places.
func (m mutator) mutate(r recording) recording {
	head, sep := "", ""
	pieces := []string{r.body}
	if r.stream {
		head, sep = "data: ", "\n\n"
		pieces = strings.Split(strings.TrimSuffix(r.body, sep), sep)
	}
	for range 1 + m.IntN(4) {
		i := m.IntN(len(pieces))
		switch n := m.IntN(12); {
		case n == 0 && r.stream:
			pieces = slices.Delete(pieces, i, i+1)
		case n == 1 && r.stream:
			pieces = slices.Insert(pieces, i, pieces[i])
		case n == 2 && r.stream:
			j := m.IntN(len(pieces))
			pieces[i], pieces[j] = pieces[j], pieces[i]
		case n == 3 && r.stream:
			pieces = slices.Insert(pieces, i, []string{": ping", "data: {}", `data: {"type":"ping"}`, `data: {"choices":null}`, "event: ping\ndata: {}", "data:"}[m.IntN(6)])
		case n == 4 && m.IntN(4) == 0:
			pieces[i] = pieces[i][:m.IntN(len(pieces[i])+1)]
		default:
			pieces[i] = m.change(pieces[i], head)
		}
		if len(pieces) == 0 {
			break
		}
	}
	r.body = strings.Join(pieces, sep) + sep
	switch {
	case m.IntN(8) == 0:
		r.body = strings.ReplaceAll(r.body, "\n", "\r\n")
	case m.IntN(8) == 0:
		r.body = "\ufeff\n" + r.body
	case m.IntN(8) == 0:
		r.body = r.body[:m.IntN(len(r.body)+1)]
	}
	return r
}

// change changes a member of the JSON in a piece.
func (m mutator) change(piece, head string) string {
	var whole map[string]any
	before, data, isData := strings.Cut(piece, head)
	if !isData || json.Unmarshal([]byte(data), &whole) != nil {
		return piece
	}
	objects := collect(whole, nil)
	from, to := objects[m.IntN(len(objects))], objects[m.IntN(len(objects))]
	names := slices.Sorted(maps.Keys(from))
	if len(names) == 0 {
		return piece
	}
	name := names[m.IntN(len(names))]
	was, err := json.Marshal(from[name]) // as text, so that it may be moved into itself
	if err != nil {
		panic(err)
	}
	switch m.IntN(4) {
	case 0:
		delete(from, name)
	case 1: // duplicate elsewhere, or move
		if m.IntN(2) == 0 {
			delete(from, name)
		}
		to[name] = json.RawMessage(was)
	default:
		from[name] = []any{nil, true, false, 0, 7, -1, 2.5, 1e19, "", "7", "null", []any{}, map[string]any{}, []any{json.RawMessage(was)}, map[string]any{"text": json.RawMessage(was)}, string(was)}[m.IntN(16)]
	}
	changed, err := json.Marshal(whole)
	if err != nil {
		panic(err)
	}
	return before + head + string(changed)
}

// collect gives all objects in v, in an order that does not vary.
func collect(v any, all []map[string]any) []map[string]any {
	switch v := v.(type) {
	case map[string]any:
		all = append(all, v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = collect(v[name], all)
		}
	case []any:
		for _, element := range v {
			all = collect(element, all)
		}
	}
	return all
}

// testRates are those of shared examples: a cached token costs a tenth of an uncached.
var testRates = price.Table{Rates: price.Rates{Input: 1_000_000, CachedInput: 100_000, CacheWrite: 1_250_000, Output: 10_000_000}}

// least is the largest report in r, in tokens, and the least that it can have billed, by a
// reading of its own: only OpenAI's counts, everything that could be a cache read taken
// for one, and the cheapest of several that are as large.
func (r recording) least() (tokens int64, cost price.Pico) {
	text := false
	for data := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\ufeff", "").Replace(r.body), "\n") {
		if data = strings.TrimSpace(strings.TrimPrefix(data, "data:")); strings.HasPrefix(data, "[DONE]") {
			break
		}
		var c struct {
			Choices []struct{ Usage, Delta, Message json.RawMessage }
			Usage   json.RawMessage
			XGroq   struct{ Usage json.RawMessage } `json:"x_groq"`
		}
		if json.Unmarshal([]byte(data), &c) != nil {
			continue
		}
		places := []json.RawMessage{c.Usage, c.XGroq.Usage}
		if len(c.Choices) == 1 {
			places = append(places, c.Choices[0].Usage)
			said := string(c.Choices[0].Delta) + string(c.Choices[0].Message)
			text = text || strings.Contains(said, `"content"`) || strings.Contains(said, `_call`)
		}
		for _, place := range places {
			var u map[string]any
			if json.Unmarshal(place, &u) != nil {
				continue
			}
			details, _ := u["prompt_tokens_details"].(map[string]any)
			made, _ := u["completion_tokens_details"].(map[string]any)
			possible := true
			count := func(in map[string]any, name string) int64 {
				n, isNumber := in[name].(float64)
				possible = possible && (!isNumber || n >= 0 && n < 1<<40 && n == float64(int64(n)))
				return int64(n)
			}
			for _, name := range []string{"prompt_tokens", "completion_tokens"} {
				_, isNumber := u[name].(float64)
				possible = possible && (isNumber || u[name] == nil)
			}
			for _, in := range []map[string]any{u, details, made} {
				for name := range in {
					if strings.HasSuffix(name, "_tokens") {
						count(in, name)
					}
				}
			}
			cached := max(count(u, "prompt_cache_hit_tokens"), count(u, "cache_read_input_tokens"), count(u, "cached_tokens"),
				count(details, "cached_tokens"), count(details, "cache_read_input_tokens"))
			written := max(count(u, "cache_creation_input_tokens"), count(details, "cache_write_tokens"), count(details, "cache_creation_input_tokens"))
			usage := price.Usage{Input: count(u, "prompt_tokens"), CachedInput: cached, CacheWrite: written, Output: count(u, "completion_tokens"), Reasoning: count(made, "reasoning_tokens")}
			if hidden := count(u, "total_tokens") - usage.Input; hidden > usage.Output { // reasoning beside the rest
				usage.Reasoning = 0
			}
			if possible && usage.Valid() && usage.Input > 0 && (usage.Output > 0 || !text) {
				if n, c := usage.Total(), testRates.Cost(usage); n > tokens || n == tokens && c < cost {
					tokens, cost = n, c
				}
			}
		}
	}
	return tokens, cost
}

// lenient is a process of OpenAI's own client, which reads the same answers.
type lenient struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

func newLenient(t testing.TB) *lenient {
	cmd := exec.Command("node", "testdata/openai.mjs")
	in, err := cmd.StdinPipe()
	check.OK(t, err)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	check.OK(t, err)
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &lenient{in: in, out: bufio.NewReader(out)}
}

// shown is what the client shows of an answer.
type shown struct {
	Text  string
	Calls []string // the arguments of each
}

func (l *lenient) shows(t testing.TB, r recording) (s shown) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, err := json.Marshal(map[string]any{"body": r.body, "stream": r.stream})
	if err == nil {
		_, err = l.in.Write(append(line, '\n'))
	}
	if err == nil {
		line, err = l.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	check.OK(t, err)
	return s
}

// holds asserts of a mutated answer that what came of it is safe, that no text and no
// arguments are lost that a lenient client shows, and that no less is charged than a report
// says.
func (l *lenient) holds(t testing.TB, r recording) {
	p, err := r.read(t)
	var e *Error
	check.Must(t, err == io.EOF || errors.As(err, &e), "%v is no *Error: %s", err, r.body)
	var said saidFailure
	if errors.As(err, &said) { // what comes after a failure is no part of the answer
		return
	}
	joined(t, p)
	check.That(t, p.FinishReason != toolCalls || len(p.ToolCalls) > 0, "%s: it ends for calls, but has none:\n%s", r.name, r.body)
	if r.dialect() != "openai" {
		return
	}
	shown := l.shows(t, r)
	check.That(t, within(shown.Text, p.Content), "%s: the text is %q (%v), OpenAI's client shows %q:\n%s", r.name, p.Content, err, shown.Text, r.body)
	var arguments strings.Builder
	for _, piece := range p.ToolCalls {
		arguments.WriteString(piece.Arguments)
	}
	for _, call := range shown.Calls {
		check.That(t, within(call, arguments.String()), "%s: the arguments are %q (%v), OpenAI's client shows %q:\n%s", r.name, arguments.String(), err, call, r.body)
	}
	charged := p.Usage
	if charged == nil {
		charged = p.AtLeast
	}
	switch tokens, cost := r.least(); {
	case e != nil && errors.Is(e.Err, errMalformed): // nothing is read after what is no JSON
	case charged == nil && tokens > 0:
		t.Errorf("%s: a report of %d tokens is lost (%v):\n%s", r.name, tokens, err, r.body)
	case charged != nil && (charged.Total() < tokens || testRates.Cost(*charged) < cost):
		t.Errorf("%s: %+v is charged, a report says %d tokens and $%s:\n%s", r.name, *charged, tokens, cost, r.body)
	}
}

// within reports whether the letters of some are all in all, in their order.
func within(some, all string) bool {
	for _, letter := range some {
		i := strings.IndexRune(all, letter)
		if i < 0 {
			return false
		}
		all = all[i+len(string(letter)):]
	}
	return true
}

func TestMutatedServers(t *testing.T) {
	l := newLenient(t)
	for _, of := range []string{"servers", "calls"} {
		all := recordings(t, of)
		for seed := range uint64(4000) {
			m := mutator{rand.New(rand.NewPCG(seed, 11))}
			if l.holds(t, m.mutate(all[seed%uint64(len(all))])); t.Failed() {
				t.Fatalf("%s with seed %d", of, seed)
			}
		}
	}
}

func FuzzServers(f *testing.F) {
	l, all := newLenient(f), append(recordings(f, "servers"), recordings(f, "calls")...)
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, seed, more uint64) {
		m := mutator{rand.New(rand.NewPCG(seed, more))}
		l.holds(t, m.mutate(all[m.IntN(len(all))]))
	})
}
