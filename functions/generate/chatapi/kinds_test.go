package chatapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
)

type object = map[string]any

// callKind is a kind of call to cv, which counts against all the limits of a user. Whatever
// a call asks for, it is settled by the same rules: a new kind is one more row.
type callKind struct {
	name   string
	path   string   // of the API, if that is not chat completions
	before []object // messages before the prompt
	part   object   // of the prompt's message, beside the text
	mark   string   // after the text
	with   object   // more fields
	unseen int64    // tokens that are billed of an answer, and are none of what it shows
	shows  string   // of a stream, what comes instead of text
}

var (
	lookUp = object{"type": "function", "function": object{"name": "look_up", "description": "Looks a word up.", "strict": false,
		"parameters": object{"type": "object", "properties": object{"what": object{"type": "string"}}, "required": []string{"what"}}}}
	lookedUp = []object{
		{"role": "user", "content": "What is a fuse?"},
		{"role": "assistant", "content": nil, "tool_calls": []object{{"id": "call_1", "type": "function", "function": object{"name": "look_up", "arguments": `{"what":"fuse"}`}}}},
		{"role": "tool", "tool_call_id": "call_1", "content": "It melts."},
		{"role": "assistant", "content": "It melts."},
	}
	onePixel = object{"type": "image_url", "image_url": object{"url": pixel, "detail": "high"}}

	lookUpOfAResponse = object{"type": "function", "name": "look_up", "description": "Looks a word up.", "strict": false,
		"parameters": lookUp["function"].(object)["parameters"]}

	plainCall = callKind{name: "plain"}
	callKinds = []callKind{
		plainCall,
		{name: "tools", with: object{"tools": []object{lookUp}}},
		{name: "a tool called", with: object{"tools": []object{lookUp}}, mark: "[[tool:look_up]]", unseen: 4 /* that frame the call */, shows: `"name":"look_up"`},
		{name: "results of tools", before: lookedUp, with: object{"tools": []object{lookUp}, "tool_choice": "none"}},
		{name: "images", part: onePixel},
		{name: "effort", with: object{"reasoning_effort": "low"}, unseen: 8}, // of reasoning
		{name: "a response", path: responsesPath},
		{name: "a response that is a call", path: responsesPath, with: object{"tools": []object{lookUpOfAResponse}}, mark: "[[tool:look_up]]", unseen: 4, shows: `"name":"look_up"`},
	}
)

// openToAll lets cv take all kinds of calls.
func openToAll(yaml string) string {
	return strings.NewReplacer("context: 1000000,\n", "context: 1000000, image_tokens: {rule: gpt-4o},\n",
		"quota: {capacity: 3, per: 24h}}", "quota: {capacity: 3, per: 24h}, allow: [tools, images], max_images: 1, reasoning_effort: [low, medium]}").Replace(yaml)
}

// call is a request of that kind.
func (k callKind) call(prompt string, stream bool) string {
	content := any(prompt + k.mark)
	if k.part != nil {
		content = []object{{"type": "text", "text": content}, k.part}
	}
	if k.path == responsesPath {
		return k.body(object{"model": "cv", "stream": stream, "max_output_tokens": cvCap, "input": content})
	}
	return k.body(object{"model": "cv", "stream": stream, "max_tokens": cvCap, "messages": append(k.before[:len(k.before):len(k.before)], object{"role": "user", "content": content})})
}

func (k callKind) body(body object) string {
	for name, value := range k.with {
		body[name] = value
	}
	return string(must(json.Marshal(body)))
}

// event is the beginning of a provider's answer.
func (k callKind) event() string {
	if k.shows != "" {
		return `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"look_up","arguments":"{"}}]}}]}` + "\n\n"
	}
	return contentEvent
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// cvCall is a plain one.
func cvCall(prompt string, stream bool) string { return plainCall.call(prompt, stream) }

// counted is how many tokens of input the last call to cv was counted as.
func (g *rig) counted() int64 { return g.reserved() - cvCap }

// ask posts a call of that kind.
func (k callKind) ask(g *rig, token, prompt string, stream bool) answer {
	g.t.Helper()
	return g.do(g.request(http.MethodPost, cmp.Or(k.path, chatPath), token, k.call(prompt, stream)))
}

// on makes a front one for calls of that kind.
func (k callKind) on(f *front) *front {
	f.path = cmp.Or(k.path, f.path)
	return f
}

// What a stream has of each piece, of one with this text, and in its last event.
func (k callKind) delta() string           { return k.spelled(`"delta":{"`, `"delta":"`) }
func (k callKind) text(text string) string { return k.delta() + k.spelled(`content":"`, "") + text }
func (k callKind) finish() string          { return k.spelled(`"finish_reason":"stop"`, `"status":"completed"`) }

func (k callKind) spelled(chat, response string) string {
	if k.path == responsesPath {
		return response
	}
	return chat
}
