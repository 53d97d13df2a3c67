package upstream

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// maxValues bounds the work for one answer. A schema of some lines can ask for more
// values than there are atoms.
const maxValues = 10_000

var errNoFit = errors.New("nothing that the built-in model can write fits it")

// fit writes JSON that fits a JSON Schema: small, always the same, and with the members
// in the order in which the schema has them. It is checked before it is given. The error
// says what is wrong with the schema, or is errNoFit.
func fit(root json.RawMessage) (json.RawMessage, error) {
	var checked any
	if err := json.Unmarshal(root, &checked); err != nil {
		return nil, err
	}
	dropPatterns(checked)
	var schema jsonschema.Schema
	if err := json.Unmarshal(encode(checked), &schema); err != nil {
		return nil, err
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, err
	}
	w := writer{root: root}
	raw, ok := w.value(root)
	if !ok {
		return nil, errNoFit
	}
	var value any
	if json.Unmarshal(raw, &value) != nil || resolved.Validate(value) != nil {
		return nil, errNoFit
	}
	return raw, nil
}

// dropPatterns removes the patterns that Go cannot read, such as those that look ahead:
// for these there is the format.
func dropPatterns(v any) {
	switch v := v.(type) {
	case map[string]any:
		if pattern, ok := v["pattern"].(string); ok {
			if _, err := regexp.Compile(pattern); err != nil {
				delete(v, "pattern")
			}
		}
		for _, member := range v {
			dropPatterns(member)
		}
	case []any:
		for _, item := range v {
			dropPatterns(item)
		}
	}
}

// writer writes one answer.
type writer struct {
	root   json.RawMessage
	within []string // the references that are being followed
	values int
}

// value writes a value that fits a schema. It is not ok if there is none, or none without
// a schema within itself: whatever fits at all has a smaller one that needs no recursion.
func (w *writer) value(raw json.RawMessage) (json.RawMessage, bool) {
	return w.fitting(readSchema(raw))
}

func (w *writer) fitting(s schema) (json.RawMessage, bool) {
	if w.values++; s == nil || w.values > maxValues {
		return nil, false
	}
	if ref := read[string](s, "$ref"); ref != "" {
		if slices.Contains(w.within, ref) {
			return nil, false
		}
		w.within = append(w.within, ref)
		defer func() { w.within = w.within[:len(w.within)-1] }()
		target := at(w.root, ref)
		if target == nil {
			return nil, false
		}
		return w.fitting(s.without("$ref").and(target))
	}
	if all := read[[]json.RawMessage](s, "allOf"); len(all) > 0 {
		rest := s.without("allOf")
		if len(all) > 1 {
			rest["allOf"] = encode(all[1:])
		}
		return w.fitting(rest.and(readSchema(all[0])))
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if _, ok := s[keyword]; ok {
			return w.first(s.without(keyword), read[[]json.RawMessage](s, keyword))
		}
	}
	if value, ok := s["const"]; ok {
		return value, true
	}
	if values := read[[]json.RawMessage](s, "enum"); len(values) > 0 {
		return values[0], true
	}
	for _, kind := range s.types() {
		if value, ok := w.ofType(kind, s); ok {
			return value, true
		}
	}
	return nil, false
}

// first writes what fits s and the first of the options that can be fitted.
func (w *writer) first(s schema, options []json.RawMessage) (json.RawMessage, bool) {
	for _, raw := range options {
		option := readSchema(raw)
		if option == nil {
			continue
		}
		if value, ok := w.fitting(option.and(s)); ok {
			return value, true
		}
	}
	return nil, false
}

func (w *writer) ofType(kind string, s schema) (json.RawMessage, bool) {
	switch kind {
	case "object":
		return w.object(s)
	case "array":
		return w.array(s)
	case "string":
		return encode(textFor(s)), true
	case "integer", "number":
		return numberFor(s, kind == "integer")
	case "boolean":
		return encode(true), true
	case "null":
		return encode(nil), true
	}
	return nil, false
}

// object has all members that can be fitted, the required ones in any case.
func (w *writer) object(s schema) (json.RawMessage, bool) {
	required := read[[]string](s, "required")
	members := s.properties()
	for _, name := range required {
		if !slices.ContainsFunc(members, func(m strictjson.Member) bool { return m.Name == name }) {
			members = append(members, strictjson.Member{Name: name, Value: s.others("additionalProperties")})
		}
	}
	if others, ok := s["additionalProperties"]; ok && len(members) == 0 && string(others) != "false" {
		for i := range max(1, read[int](s, "minProperties")) { // a map: its names are free
			members = append(members, strictjson.Member{Name: "key" + strconv.Itoa(i+1), Value: others})
		}
	}
	var written []strictjson.Member
	for _, m := range members {
		value, ok := w.value(m.Value)
		if !ok && slices.Contains(required, m.Name) {
			return nil, false
		}
		if ok {
			written = append(written, strictjson.Member{Name: m.Name, Value: value})
		}
	}
	return object(written), true
}

// others is the schema of what a list or an object has beyond what is named.
func (s schema) others(keyword string) json.RawMessage {
	if raw, ok := s[keyword]; ok {
		return raw
	}
	return json.RawMessage("true")
}

// array has as many items as it must have, and one if it may.
func (w *writer) array(s schema) (json.RawMessage, bool) {
	items, beyond := read[[]json.RawMessage](s, "prefixItems"), s.others("items")
	if old := read[[]json.RawMessage](s, "items"); old != nil { // as drafts before 2020-12 have it
		items, beyond = old, s.others("additionalItems")
	}
	least := read[int](s, "minItems")
	want := max(1, least, len(items))
	if most := read[*int](s, "maxItems"); most != nil {
		want = min(want, *most)
	}
	written := []json.RawMessage{}
	for i := range want {
		item := beyond
		if i < len(items) {
			item = items[i]
		}
		value, ok := w.value(item)
		if !ok {
			break
		}
		written = append(written, value)
	}
	return encode(written), len(written) >= least
}

// numberFor is a plain number if one fits, else one at or near a bound.
func numberFor(s schema, whole bool) (json.RawMessage, bool) {
	number := func(keyword string, otherwise float64) float64 {
		if v := read[*float64](s, keyword); v != nil {
			return *v
		}
		return otherwise
	}
	low, above := number("minimum", math.Inf(-1)), number("exclusiveMinimum", math.Inf(-1))
	high, below := number("maximum", math.Inf(1)), number("exclusiveMaximum", math.Inf(1))
	step := number("multipleOf", 0)
	fits := func(n float64) bool {
		steps := n / step
		return n >= low && n > above && n <= high && n < below && (!whole || n == math.Trunc(n)) &&
			(step == 0 || math.Abs(steps-math.Round(steps)) < 1e-9) && !math.IsInf(n, 0)
	}
	least, most, grid := max(low, above), min(high, below), step
	if grid == 0 {
		grid = 1
	}
	up, down := math.Ceil(least/grid)*grid, math.Floor(most/grid)*grid
	for _, n := range []float64{1.5, 1, 0, step, least, most, up, up + grid, down, down - grid, (least + most) / 2} {
		if fits(n) {
			return encode(n), true
		}
	}
	return nil, false
}

// samples are texts of the formats that schemas name.
var samples = map[string]string{
	"date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "time": "12:00:00Z", "duration": "P1D",
	"email": "someone@example.com", "hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
	"uri": "https://example.com/", "url": "https://example.com/", "uuid": "0190a3b2-5d1c-7e4f-8a6b-1c2d3e4f5a6b",
}

// textFor is a word, or what the format or the pattern asks for, of a length that fits.
func textFor(s schema) string {
	text, least, most := "text", read[int](s, "minLength"), read[*int](s, "maxLength")
	if sample, ok := samples[read[string](s, "format")]; ok {
		text = sample
	}
	if pattern, err := regexp.Compile(read[string](s, "pattern")); err == nil && !pattern.MatchString(text) {
		parsed, _ := syntax.Parse(pattern.String(), syntax.Perl)
		for _, more := range []int{0, 1, least} {
			var b strings.Builder
			sample(&b, parsed, more)
			if text = b.String(); len([]rune(text)) >= least {
				break
			}
		}
		return text
	}
	if missing := least - len([]rune(text)); missing > 0 && missing <= maxOutput {
		text += strings.Repeat("x", missing)
	}
	if letters := []rune(text); most != nil && *most >= 0 && len(letters) > *most {
		text = string(letters[:*most])
	}
	return text
}

// sample writes a text that an expression matches, with so many more repetitions than
// there must be.
func sample(b *strings.Builder, re *syntax.Regexp, more int) {
	times := 1
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
		return
	case syntax.OpCharClass:
		b.WriteRune(oneOf(re.Rune))
		return
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('x')
		return
	case syntax.OpAlternate:
		sample(b, re.Sub[0], more)
		return
	case syntax.OpStar, syntax.OpQuest:
		times = more
		if re.Op == syntax.OpQuest {
			times = min(1, more)
		}
	case syntax.OpPlus:
		times = 1 + more
	case syntax.OpRepeat:
		if times = re.Min + more; re.Max >= 0 {
			times = min(times, re.Max)
		}
	default: // a sequence, a group, or what stands for no text
	}
	for range times {
		before := b.Len()
		for _, sub := range re.Sub {
			sample(b, sub, more)
		}
		if b.Len() == before || b.Len() > maxOutput { // an endless repetition of nothing, or of too much
			return
		}
	}
}

// oneOf is a character of a class, given by its ranges, and one that can be read if it
// has any.
func oneOf(ranges []rune) rune {
	for _, wanted := range "xX1_- " {
		for i := 0; i+1 < len(ranges); i += 2 {
			if wanted >= ranges[i] && wanted <= ranges[i+1] {
				return wanted
			}
		}
	}
	if len(ranges) == 0 {
		return 'x'
	}
	return ranges[0]
}
