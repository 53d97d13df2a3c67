package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

const (
	maxDepth   = 32  // of nesting; the schema needs 6, and tools 22 more
	maxEntries = 100 // of a mapping with free names, or a list: the checks cross them
)

// reader collects the mistakes while the tree is read. It remembers the line of each
// value, so that a check of the whole can name lines, too.
type reader struct {
	lines    map[string]int // path -> line
	problems Problems
}

// report notes a mistake at the line of path. If path is not in the file, it is the line
// of the part that should hold it.
func (r *reader) report(path, format string, args ...any) {
	r.reportAt(r.line(path), path, format, args...)
}

func (r *reader) reportAt(line int, path, format string, args ...any) {
	r.problems = append(r.problems, Problem{line, path, fmt.Sprintf(format, args...)})
}

func (r *reader) line(path string) int {
	for path != "" {
		if line, ok := r.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 1
}

// document parses the one YAML document of data. A file that is not YAML has
// one mistake: nothing after it can be read.
func (r *reader) document(data []byte) (value, bool) {
	if len(data) > maxSize {
		r.reportAt(1, "", "the file must not be larger than 1 MiB")
		return value{}, false
	}
	var doc, second yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(data),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err == nil {
		err = loader.Load(&doc)
	}
	if errors.Is(err, io.EOF) {
		r.reportAt(1, "", "the file is empty")
		return value{}, false
	}
	if err == nil {
		err = loader.Load(&second)
	}
	switch {
	case errors.Is(err, io.EOF):
		return value{r: r, node: doc.Content[0]}, true
	case err == nil:
		r.reportAt(second.Line, "", "the file must hold one document: remove what follows ---")
	default:
		line, message := syntaxError(err, data)
		r.reportAt(line, "", "%s", message)
	}
	return value{}, false
}

func syntaxError(err error, data []byte) (line int, message string) {
	var e *yaml.LoadError
	switch {
	case !errors.As(err, &e):
		return 1, "is not valid YAML"
	case e.Stage == yaml.ComposerStage:
		return max(1, e.Mark.Line), noAliases // its message repeats the alias
	case e.Mark.Line == 0: // refused before it was split into lines
		return unreadableLine(data), "is not valid YAML: " + e.Message
	case e.ContextMsg == "":
		return e.Mark.Line, "is not valid YAML: " + e.Message
	}
	return e.Mark.Line, fmt.Sprintf("is not valid YAML: %s (%s that begins on line %d)",
		e.Message, e.ContextMsg, e.ContextMark.Line)
}

// unreadableLine finds the first line with a byte that YAML does not accept.
func unreadableLine(data []byte) int {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) || bytes.ContainsFunc(line, func(c rune) bool { return unicode.IsControl(c) && c != '\t' && c != '\r' }) {
			return i + 1
		}
	}
	return 1
}

const noAliases = "anchors and aliases are not accepted: write the value out"

// value is a value with its place in the file. One that was left out has no
// node; reading it gives the zero value and reports nothing.
type value struct {
	r     *reader
	path  string
	node  *yaml.Node
	shape shape // what may stand here, if that is asked: see Schema
}

// given reports whether v is in the file. Where its shape is asked, all is given.
func (v value) given() bool { return v.node != nil || v.shape != nil }

func (v value) report(format string, args ...any) { v.r.report(v.path, format, args...) }

// is reports whether v was given as a node of the kind that what describes.
func (v value) is(kind yaml.Kind, what string) bool {
	n := v.node
	if n == nil {
		return false
	}
	if n.Anchor != "" {
		v.report(noAliases) // and go on: its own content can be read
	}
	switch {
	case n.Kind == yaml.AliasNode:
		v.report(noAliases)
	case n.Style&yaml.TaggedStyle != 0:
		v.report("tags are not accepted: must be %s", what)
	case n.Tag == "!!null":
		v.report("has no value: must be %s", what)
	case n.Kind != kind:
		v.report("must be %s", what)
	default:
		return true
	}
	return false
}

// child makes a value below v and remembers its line.
func (v value) child(path string, line int, node *yaml.Node) value {
	v.r.lines[path] = line
	return value{r: v.r, path: path, node: node}
}

// entries reads a mapping in the order of the file; keys are text and unique.
func (v value) entries(what string) (names []string, entries map[string]value, ok bool) {
	if !v.is(yaml.MappingNode, what) {
		return nil, nil, false
	}
	entries = make(map[string]value)
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, node := v.node.Content[i], v.node.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Anchor != "" {
			v.r.reportAt(key.Line, v.path, "a key must be a plain name")
			continue
		}
		path := join(v.path, printable(key.Value))
		if first, twice := entries[key.Value]; twice {
			v.r.reportAt(key.Line, path, "stands twice, first on line %d", v.r.lines[first.path])
			continue
		}
		names = append(names, key.Value)
		entries[key.Value] = v.child(path, key.Line, node)
	}
	return names, entries, true
}

// object is a mapping whose keys the schema names.
type object struct {
	value
	names   []string
	entries map[string]value
	asked   []string
	ok      bool // it is a mapping; else nothing in it is missed
}

// object reads v as a mapping. Each key is then asked for by get or need, and
// end reports those that nobody asked for.
func (v value) object() *object {
	o := &object{value: v}
	v.shape.set("type", "object").set("additionalProperties", false)
	o.names, o.entries, o.ok = v.entries("a mapping of keys to values")
	return o
}

// get gives the value of a key that may be left out.
func (o *object) get(key string) value {
	o.asked = append(o.asked, key)
	if o.shape != nil {
		return value{r: o.r, path: join(o.path, key), shape: o.shape.within("properties").within(key)}
	}
	return o.entries[key] // absent: not given
}

// need gives the value of a required key.
func (o *object) need(key string) value {
	v := o.get(key)
	if o.ok && !v.given() {
		o.r.report(join(o.path, key), "is required")
	}
	o.shape.require(key)
	return v
}

// needOne reports an object that has none of the keys. They were asked for before.
func (o *object) needOne(keys ...string) {
	given := func(key string) bool { return o.entries[key].given() }
	if o.ok && !slices.ContainsFunc(keys, given) {
		last := len(keys) - 1
		o.report("must have at least one of %s and %s", strings.Join(keys[:last], ", "), keys[last])
	}
	o.shape.requireOne(keys)
}

// leaveOut reports a key that must not be given.
func (o *object) leaveOut(key, format string, args ...any) {
	if v := o.get(key); v.given() {
		v.report(format, args...)
	}
	o.shape.within("properties").remove(key)
}

// needFor reports that key is missing, if kind, which is the object's kind, is the word.
func (o *object) needFor(word, kind, key, more string) {
	if kind == word && o.ok && !o.entries[key].given() {
		o.r.report(join(o.path, key), "is required for kind %s%s", word, more)
	}
	o.shape.requireFor(word, key)
}

// leaveOutFor reports that key is given, if kind, which is the object's kind, is the word.
func (o *object) leaveOutFor(word, kind, key, more string) {
	if v := o.entries[key]; kind == word && v.given() {
		v.report("must be left out for kind %s%s", word, more)
	}
	o.shape.refuseFor(word, key)
}

func (o *object) end() {
	for _, name := range o.names {
		if !slices.Contains(o.asked, name) {
			o.entries[name].report("unknown key; known here: %s", strings.Join(slices.Compact(slices.Sorted(slices.Values(o.asked))), ", "))
		}
	}
}

// named reads a mapping with free names. It is nil when v was left out or
// cannot be read as that. Of the names in own, read takes other values.
func named[T any](v value, read func(name string, v value) *T, own ...string) map[string]*T {
	if v.shape != nil {
		v.shape.set("type", "object").set("minProperties", 1).set("maxProperties", maxEntries)
		v.shape.within("propertyNames").set("pattern", namePattern)
		for _, name := range own {
			read(name, value{r: v.r, shape: v.shape.within("properties").within(name)})
		}
		read("", value{r: v.r, shape: v.shape.within("additionalProperties")})
		return nil
	}
	names, entries, ok := v.entries("a mapping of names to what they stand for")
	if !ok {
		return nil
	}
	if len(names) == 0 || len(names) > maxEntries {
		v.report("must have 1 to %d entries", maxEntries)
		return nil
	}
	all := make(map[string]*T, len(names))
	for _, name := range names {
		if !validName(name) {
			entries[name].report("a name must have 1 to 32 characters of a-z, 0-9, _ and -")
		}
		all[name] = read(name, entries[name])
	}
	return all
}

// refer resolves a name. A nil map is one that could not be read or was left
// out: then nothing can be said of the name.
func refer[T any](v value, what string, all map[string]*T) *T {
	name := v.text()
	if name == "" || all == nil {
		return nil
	}
	if all[name] == nil {
		v.report("unknown %s; it must be one of: %s", what, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return all[name]
}

// list reads a sequence of at least one item.
func (v value) list(what string) []value {
	if v.shape != nil {
		v.shape.set("type", "array").set("minItems", 1).set("maxItems", maxEntries)
		return []value{{r: v.r, shape: v.shape.within("items")}}
	}
	if !v.is(yaml.SequenceNode, "a list of "+what) {
		return nil
	}
	if n := len(v.node.Content); n == 0 || n > maxEntries {
		v.report("must be a list of 1 to %d %s", maxEntries, what)
		return nil
	}
	items := make([]value, len(v.node.Content))
	for i, node := range v.node.Content {
		items[i] = v.child(fmt.Sprintf("%s[%d]", v.path, i), node.Line, node)
	}
	return items
}

// texts reads a list of different texts; check may report more about each.
func (v value) texts(what string, check func(value, string)) []string {
	var texts []string
	v.shape.set("uniqueItems", true)
	for _, item := range v.list(what) {
		s := item.text()
		switch {
		case item.shape != nil:
			check(item, s)
		case s == "":
			continue
		case slices.Contains(texts, s):
			item.report("stands twice in the list")
		default:
			check(item, s)
		}
		texts = append(texts, s)
	}
	return texts
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// printable makes a key fit for a message.
func printable(key string) string {
	const most = 64
	plain := func(c rune) bool { return c > ' ' && c <= '~' }
	if len(key) <= most && key != "" && !strings.ContainsFunc(key, func(c rune) bool { return !plain(c) }) {
		return key
	}
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "..."
	}
	return strconv.QuoteToASCII(key)
}
