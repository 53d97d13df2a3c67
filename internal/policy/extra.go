package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxExtra bounds the extra fields of a model, in bytes of JSON: they go with every call.
const maxExtra = 16 << 10

// ownFields are fields of a request that a model's extra fields may not name, since
// tokenfuse sets them itself, or since they make a call cost what nobody has reserved.
var ownFields = []string{
	// What is asked.
	"model", "messages", "system", "prompt", "input", "stream", "stream_options", "response_format",
	"temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop", "stop_sequences",
	// The output cap, by every name under which a server may know it.
	"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample",
	"num_predict", "n_predict",
	// More answers than one, of other models than the one with the price, and what is billed
	// beside tokens or as tokens of another price.
	"n", "best_of", "num_return_sequences", "candidate_count", "models", "fallbacks", "route", "prediction",
	"tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "mcp_servers", "plugins",
	"web_search_options", "search_parameters", "logprobs", "top_logprobs", "modalities", "audio",
	// How vectors come: one that is not as the caller asked could not be read.
	"encoding_format", "dimensions",
}

// holders are extra fields whose own fields some servers take for those of the request.
var holders = []string{"extra_body", "inference_config", "generation_config", "options", "parameters"}

// isOneOf reports whether name is one of the words to a server that does not mind the
// case, as Go's own JSON does not, or that calls max_tokens maxTokens.
func isOneOf(name string, words []string) bool {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	return slices.ContainsFunc(words, func(word string) bool { return plain(word) == plain(name) })
}

// extra reads the fields that are added to each request: an object as JSON, nil if there
// are none.
func (v value) extra() json.RawMessage {
	const what = "a mapping of fields to values, which are added to each request"
	if v.shape != nil {
		v.shape.set("type", "object").set("minProperties", 1).set("maxProperties", maxEntries).describe(what)
		v.shape.within("propertyNames").set("minLength", 1).except(ownFields, "")
		v.shape.within("additionalProperties").set("type", []string{"string", "number", "boolean", "object", "array"})
		return nil
	}
	if !v.isMapping(what) {
		return nil
	}
	encoded := v.json(what, fieldsOfRequest)
	switch {
	case encoded == nil:
	case len(v.node.Content) == 0:
		v.report("must have at least one field")
	case len(encoded) > maxExtra:
		v.report("must be at most %d bytes of JSON", maxExtra)
	}
	return encoded
}

// isMapping reports whether a mapping was given. What it holds was not looked at.
func (v value) isMapping(what string) bool {
	return v.node != nil && (v.node.Kind == yaml.MappingNode || v.is(yaml.MappingNode, what))
}

// json is the value as JSON, its fields in the order of the file; nil if something in it
// was reported.
func (v value) json(what string, g guard) json.RawMessage {
	before := len(v.r.problems)
	var b bytes.Buffer
	v.free(&b, what, g)
	if len(v.r.problems) > before {
		return nil
	}
	return b.Bytes()
}

// guard says which names the fields of a mapping may have.
type guard int

const (
	anyFields       guard = iota
	fieldsOfRequest       // none of ownFields
	fieldsOfHolder        // none of ownFields, however deep
	fieldsOfSchema        // any, and null is a value
)

func (g guard) below(name string) guard {
	if g == fieldsOfSchema {
		return g
	}
	if g == fieldsOfHolder || g == fieldsOfRequest && isOneOf(name, holders) {
		return fieldsOfHolder
	}
	return anyFields
}

// free writes a value of any shape as JSON. After a report, what is written is none.
func (v value) free(b *bytes.Buffer, what string, g guard) {
	switch n := v.node; {
	case n.Kind == yaml.MappingNode:
		names, entries, _ := v.entries(what)
		b.WriteByte('{')
		for i, name := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(b, name)
			b.WriteByte(':')
			switch entry := entries[name]; {
			case name == "" && g != fieldsOfSchema:
				entry.report("a field must have a name")
			case (g == fieldsOfRequest || g == fieldsOfHolder) && isOneOf(name, ownFields):
				entry.report("must be left out: tokenfuse sets it, or with it a call would cost what is not reserved for it")
			default:
				entry.free(b, aboutFree, g.below(name))
			}
		}
		b.WriteByte('}')
	case n.Kind == yaml.SequenceNode:
		v.is(yaml.SequenceNode, what)
		b.WriteByte('[')
		for i, node := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			v.child(fmt.Sprintf("%s[%d]", v.path, i), node.Line, node).free(b, aboutFree, g)
		}
		b.WriteByte(']')
	case n.Tag == "!!bool":
		b.WriteString(strconv.FormatBool(v.boolean()))
	case n.Tag == "!!int", n.Tag == "!!float":
		s, ok := v.scalar(what, n.Tag)
		if ok && !json.Valid([]byte(s)) {
			v.report("must be a number as JSON has it, or text in quotes")
		}
		b.WriteString(s)
	case n.Tag == "!!null" && g == fieldsOfSchema && n.Value != "" && n.Style&yaml.TaggedStyle == 0 && n.Anchor == "":
		b.WriteString("null") // which stands there on purpose
	default:
		s, _ := v.scalar(what, "!!str")
		quote(b, s)
	}
}

// quote writes s as JSON does, but <, > and & as they are.
func quote(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // text cannot fail
	b.Truncate(b.Len() - 1)
}

const aboutFree = "text, a number, true or false, a list or a mapping"

// keyHeaders bear keys. Extra headers, whose values stand in the file, may not.
var keyHeaders = []string{"Authorization", "Proxy-Authorization", "Api-Key", "X-Api-Key", "X-Goog-Api-Key", "Cookie"}

// ownHeaders are set by tokenfuse or by HTTP itself, or would make each call a repetition
// of the first.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Anthropic-Version", "Content-Encoding", "Content-Length", "Content-Type", "User-Agent",
	"Connection", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Idempotency-Key",
}

const (
	headerName  = `^[A-Za-z0-9_-]{1,64}$`
	headerValue = `^[!-~]([ -~]*[!-~])?$`
	// keyLike is a value that is a key by its looks.
	keyLike = `^([Bb]earer|[Bb]asic|[Kk]ey) |^sk-`
)

func validHeader(name string) bool { return len(name) <= 64 && class("A-Za-z0-9_-").all(name) }

func validValue(s string) bool {
	return len(s) <= 1024 && strings.Trim(s, " ") == s && class(" -~").all(s)
}

func likeKey(s string) bool {
	scheme, _, more := strings.Cut(s, " ")
	return more && slices.Contains(bothCases([]string{"Bearer", "Basic", "Key"}), scheme) || strings.HasPrefix(s, "sk-")
}

// bothCases is how people write the names of headers.
func bothCases(names []string) []string {
	all := slices.Clone(names)
	for _, name := range names {
		all = append(all, strings.ToLower(name))
	}
	return all
}

// headers reads headers with fixed values, by their canonical names. No message repeats a
// value, which may be a secret by mistake.
func (v value) headers(keyHeader string) map[string]string {
	const what = "a mapping of names of headers to their values"
	if v.shape != nil {
		v.shape.set("type", "object").set("minProperties", 1).set("maxProperties", maxEntries).describe(what)
		v.shape.within("propertyNames").set("pattern", headerName).except(bothCases(slices.Concat(ownHeaders, keyHeaders)), "")
		v.shape.within("additionalProperties").set("type", "string").set("maxLength", 1024).set("pattern", headerValue).except(nil, keyLike)
		return nil
	}
	if !v.given() {
		return nil
	}
	names, entries, ok := v.entries(what)
	if ok && (len(names) == 0 || len(names) > maxEntries) {
		v.report("must have 1 to %d entries", maxEntries)
	}
	headers := make(map[string]string, len(names))
	for _, name := range names {
		entry, canonical := entries[name], textproto.CanonicalMIMEHeaderKey(name)
		value, ok := entry.scalar("text (in quotes if it looks like a number)", "!!str")
		_, twice := headers[canonical]
		switch {
		case !validHeader(name):
			entry.report("the name of a header must have 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
		case slices.Contains(keyHeaders, canonical), canonical == textproto.CanonicalMIMEHeaderKey(keyHeader):
			entry.report("must be left out: a key belongs into api_key, and the name of its header into key_header")
		case slices.Contains(ownHeaders, canonical):
			entry.report("must be left out: tokenfuse or HTTP itself sets it, or it would make calls repeat each other")
		case twice:
			entry.report("stands twice: names of headers do not differ by case")
		case ok && (!validValue(value) || likeKey(value)):
			entry.report("must be 1 to 1024 printable ASCII characters without a space at either end, and no secret")
		}
		headers[canonical] = value
	}
	return headers
}

// keyHeader reads the name of the header that bears a provider's key.
func (v value) keyHeader() string {
	name := v.text()
	v.shape.set("pattern", headerName).except(bothCases(ownHeaders), "")
	if name != "" && (!validHeader(name) || slices.Contains(ownHeaders, textproto.CanonicalMIMEHeaderKey(name))) {
		v.report("must be the name of a header that is not set otherwise, such as api-key")
		return ""
	}
	return name
}
