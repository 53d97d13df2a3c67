package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/span"
)

// Bounds that keep every product of them within int64: the dearest price times
// the most input and output tokens of a call is 2e18 pico-dollars.
const (
	maxTokens   = 100_000_000       // of a call or a context
	maxPrice    = 10_000_000_000    // pico-dollars per token: 10,000 dollars per million
	maxDollars  = 1_000_000_000_000 // micro-dollars of a limit or pool: a million dollars
	maxCapacity = 1_000_000_000_000 // tokens or requests of a limit

	// Of a call.
	maxImages = 100
	maxTools  = openai.MaxTools
	maxInputs = openai.MaxInputs

	day       = 24 * time.Hour
	maxPeriod = 366 * day
)

// namePattern is what validName accepts.
const namePattern = `^[a-z0-9_-]{1,32}$`

func validName(s string) bool { return len(s) <= 32 && class("a-z0-9_-").all(s) }

// scalar gives the text of a scalar of one of the tags.
func (v value) scalar(what string, tags ...string) (string, bool) {
	v.shape.describe(what)
	if !v.is(yaml.ScalarNode, what) {
		return "", false
	}
	if !slices.Contains(tags, v.node.Tag) {
		v.report("must be %s", what)
		return "", false
	}
	return v.node.Value, true
}

// prose reads text of any length and shape.
func (v value) prose() string {
	v.shape.set("type", "string")
	s, _ := v.scalar("text (in quotes if it could be taken for something else)", "!!str")
	return s
}

// text reads a word: not empty, no spaces. It gives "" for anything else.
func (v value) text() string {
	v.shape.set("type", "string").set("pattern", `^\S+$`).set("maxLength", 1024)
	s, ok := v.scalar("text (in quotes if it looks like a number)", "!!str")
	if ok && (s == "" || len(s) > 1024 || strings.ContainsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) })) {
		v.report("must be text without spaces, of 1 to 1024 bytes")
		return ""
	}
	return s
}

// choice reads one of the given words.
func (v value) choice(words ...string) string {
	v.shape.choice(words)
	what := "one of " + strings.Join(words, ", ")
	s, ok := v.scalar(what, "!!str")
	if ok && !slices.Contains(words, s) {
		v.report("must be %s", what)
		return ""
	}
	return s
}

// boolean reads true or false; false for anything else.
func (v value) boolean() bool {
	v.shape.set("type", "boolean")
	s, ok := v.scalar("true or false", "!!bool")
	if ok && s != "true" && s != "false" {
		v.report("must be true or false")
	}
	return s == "true"
}

// booleanOr reads true or false, or gives what applies if the value is left out.
func (v value) booleanOr(otherwise bool) bool {
	if b := v.boolean(); v.given() {
		return b
	}
	return otherwise
}

// integer reads a whole number from 1 to most. It gives 0 for anything else.
func (v value) integer(most int64) int64 { return v.integerFrom(1, most) }

// integerOr reads a whole number from 0 to most, or gives what applies if the value is
// left out.
func (v value) integerOr(otherwise, most int64) int64 {
	if n := v.integerFrom(0, most); v.given() {
		return n
	}
	return otherwise
}

func (v value) integerFrom(least, most int64) int64 {
	v.shape.integer(least, most)
	what := fmt.Sprintf("a whole number from %d to %d", least, most)
	s, ok := v.scalar(what, "!!int", "!!float")
	if !ok {
		return 0
	}
	// Plain decimal digits alone: in YAML 0100 is 64 to some and 100 to others.
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s || n < least || n > most {
		v.report("must be %s", what)
		return 0
	}
	return n
}

// number reads a decimal number above least and up to most.
func (v value) number(least, most float64) float64 {
	v.shape.number(least, most)
	what := "a number above " + strconv.FormatFloat(least, 'f', -1, 64) + " and up to " + strconv.FormatFloat(most, 'f', -1, 64)
	s, ok := v.scalar(what, "!!int", "!!float")
	if !ok {
		return 0
	}
	n, ok := millionths(s)
	if f := float64(n) / 1e6; ok && f > least && f <= most {
		return f
	}
	v.report("must be %s, with at most 6 decimals", what)
	return 0
}

// dollars reads an amount above zero, in micro-dollars.
func (v value) dollars() int64 {
	v.shape.decimal(6, false)
	const what = `dollars as a decimal number above 0 and up to 1000000 with at most 6 decimals, such as "2.00"`
	s, ok := v.scalar(what, "!!str", "!!int", "!!float")
	if !ok {
		return 0
	}
	n, ok := millionths(s)
	if !ok || n == 0 || n > maxDollars {
		v.report("must be %s", what)
		return 0
	}
	return n
}

// rate reads a price in dollars per million tokens. A millionth of that is a
// pico-dollar per token. Zero is a price too, if it is written.
func (v value) rate() price.Pico {
	v.shape.decimal(4, true)
	const what = `dollars per million tokens as a decimal number up to 10000 with at most 6 decimals, such as "0.40"`
	s, ok := v.scalar(what, "!!str", "!!int", "!!float")
	if !ok {
		return 0
	}
	n, ok := millionths(s)
	if !ok || n > maxPrice {
		v.report("must be %s", what)
		return 0
	}
	return price.Pico(n)
}

// picoDollars turns micro-dollars into pico-dollars.
func picoDollars(micros int64) price.Pico { return price.Pico(micros) * (price.Dollar / 1_000_000) }

// millionths reads a decimal number with at most 6 decimals exactly, as a
// number of millionths. No sign, exponent or needless leading zero.
func millionths(s string) (int64, bool) {
	whole, fraction, point := strings.Cut(s, ".")
	switch {
	case !digits(whole), len(whole) > 9, len(whole) > 1 && whole[0] == '0':
		return 0, false
	case point && !digits(fraction), len(fraction) > 6:
		return 0, false
	}
	n, err := strconv.ParseInt(whole+fraction+"000000"[len(fraction):], 10, 64)
	return n, err == nil
}

func digits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

// period reads the period of a limit or the like: whole seconds.
func (v value) period(most time.Duration) time.Duration {
	d := v.duration(time.Second, most)
	if d%time.Second != 0 {
		v.report("must be in whole seconds")
		return 0
	}
	return d
}

// duration reads a Go duration, with d for days in front.
func (v value) duration(least, most time.Duration) time.Duration {
	v.shape.set("type", "string").set("pattern", durationPattern)
	what := "a duration from " + formatDuration(least) + " to " + formatDuration(most) + ", such as 30s, 1h, 1d or 1d12h"
	s, ok := v.scalar(what, "!!str", "!!int", "!!float")
	if !ok {
		return 0
	}
	d, ok := parseDuration(s)
	if !ok || d < least || d > most {
		v.report("must be %s", what)
		return 0
	}
	return d
}

// durationPattern is what parseDuration accepts, but for the sizes of its numbers.
const durationPattern = `^([0-9]+d|([0-9]+d)?[0-9]+\.?[0-9]*(ns|us|µs|μs|ms|s|m|h)(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*)$`

func parseDuration(s string) (time.Duration, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' { // a sign
		return 0, false
	}
	d, err := span.Parse(s)
	return d, err == nil
}

func formatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// webURL reads an absolute http(s) URL without credentials, query or fragment.
func (v value) webURL() *url.URL {
	return v.address("?#", `^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\s]+(/[^?#\s]*)?$`, "user, query and fragment")
}

// address reads an absolute http(s) URL that has none of the characters in without, and
// so not what is named.
func (v value) address(without, pattern, named string) *url.URL {
	s := v.text()
	v.shape.set("pattern", pattern)
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" ||
		u.User != nil || strings.ContainsAny(s, without) {
		v.report("must be an http or https URL without %s", named)
		return nil
	}
	return u
}

// Of names in references to secrets.
const (
	envName          = `^[A-Za-z_][A-Za-z0-9_]*$`
	ssmName    class = "A-Za-z0-9_./:-"
	secretName class = "A-Za-z0-9/_+=.@:!-"
)

func validVariable(s string) bool { return class("A-Za-z0-9_").all(s) && !digits(s[:1]) }

// secret reads a reference to a secret. Anything else that stands there may be the secret
// itself, so no message repeats any of it, not even a key.
func (v value) secret() *Secret {
	v.shape.reference()
	n := v.node
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode || n.Style&yaml.TaggedStyle != 0 || n.Anchor != "" || len(n.Content) == 0 {
		v.report("%s", aboutSecrets)
		return nil
	}
	s := &Secret{}
	for i := 0; i < len(n.Content); i += 2 {
		key, content := n.Content[i], n.Content[i+1]
		var place *string
		var valid func(string) bool
		what := ""
		switch key.Value {
		case "env":
			place, valid, what = &s.Env, validVariable, "name of an environment variable"
		case "ssm":
			place, valid, what = &s.SSM, ssmName.all, "name or ARN of an SSM parameter"
		case "secret":
			place, valid, what = &s.Secret, secretName.all, "name or ARN of a Secrets Manager secret"
		}
		if place == nil || *place != "" || key.Anchor != "" || content.Anchor != "" || content.Tag != "!!str" {
			v.report("%s", aboutSecrets)
			return nil
		}
		*place = content.Value
		if len(content.Value) > 1024 || !valid(content.Value) {
			v.child(join(v.path, key.Value), key.Line, content).report("must be the %s; the secret itself does not belong here", what)
		}
	}
	if s.SSM != "" && s.Secret != "" {
		v.report("%s", aboutSecrets)
	}
	return s
}

const aboutSecrets = "must be a reference: {env: NAME}, {ssm: NAME}, {secret: NAME}, or env with one of the others for where it is not set; the secret itself does not belong here"
