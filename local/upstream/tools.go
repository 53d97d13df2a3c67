package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxTools = 128
	maxName  = 64 // characters
)

// tool is a function that the caller offers.
type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      bool            `json:"strict"`
	} `json:"function"`

	arguments string // what it is called with
}

// toolChoice says which tools may be called.
type toolChoice struct {
	mode string // none, auto, required, or "" for the one that is named
	name string
}

// checkTools reads the tools and what is said of them.
func (r *request) checkTools() *problem {
	if r.Tools == nil {
		const needless = "Invalid value for '%[1]s': '%[1]s' is only allowed when 'tools' are specified."
		switch {
		case r.ToolChoice != nil:
			return misplaced("tool_choice", needless, "tool_choice")
		case r.ParallelToolCalls != nil:
			return misplaced("parallel_tool_calls", needless, "parallel_tool_calls")
		}
		return nil
	}
	if len(r.Tools) == 0 {
		return tooFew("tools")
	}
	if len(r.Tools) > maxTools {
		return tooMany("tools", len(r.Tools), maxTools)
	}
	for i := range r.Tools {
		if p := r.Tools[i].check(fmt.Sprintf("tools[%d]", i)); p != nil {
			return p
		}
	}
	return r.readToolChoice()
}

func (r *request) readToolChoice() *problem {
	r.choice.mode = "auto"
	switch {
	case r.ToolChoice == nil:
		return nil
	case decode(r.ToolChoice, &r.choice.mode, "") == nil:
		if !slices.Contains([]string{"none", "auto", "required"}, r.choice.mode) {
			return invalid("tool_choice", "invalid_value", "Invalid value: '%s'. Supported values are: 'none', 'auto', and 'required'.", r.choice.mode)
		}
		return nil
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if p := decode(r.ToolChoice, &named, "tool_choice"); p != nil {
		return p
	}
	if named.Type != "function" {
		return invalid("tool_choice.type", "invalid_value", "Invalid value: '%s'. Supported values are: 'function'.", named.Type)
	}
	if named.Function.Name == "" {
		return missing("tool_choice.function.name")
	}
	if r.tool(named.Function.Name) == nil {
		return misplaced("tool_choice", "Invalid value for 'tool_choice': no function named '%s' was specified in the 'tools' parameter.", named.Function.Name)
	}
	r.choice = toolChoice{name: named.Function.Name}
	return nil
}

// tool gives the tool of this name, or nil.
func (r *request) tool(name string) *tool {
	for i := range r.Tools {
		if r.Tools[i].Function.Name == name {
			return &r.Tools[i]
		}
	}
	return nil
}

func (t *tool) check(at string) *problem {
	if t.Type != "function" {
		if t.Type == "" {
			return missing(at + ".type")
		}
		return invalid(at+".type", "invalid_value", "Invalid value: '%s'. Supported values are: 'function'.", t.Type)
	}
	if p := checkName(at+".function.name", t.Function.Name); p != nil {
		return p
	}
	if t.arguments = "{}"; t.Function.Parameters == nil || isNull(t.Function.Parameters) {
		return nil
	}
	reason := checkParameters(t.Function.Parameters, t.Function.Strict)
	if reason == "" {
		switch fitting, err := fit(t.Function.Parameters); {
		case err == nil:
			t.arguments = string(fitting)
		case !errors.Is(err, errNoFit): // a schema that nothing fits is no mistake that a provider would see
			reason = err.Error() + "."
		}
	}
	if reason != "" {
		return invalid(at+".function.parameters", "invalid_function_parameters", "Invalid schema for function '%s': %s", t.Function.Name, reason)
	}
	return nil
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// checkName is for the name of a function.
func checkName(at, name string) *problem {
	switch {
	case name == "":
		return missing(at)
	case len(name) > maxName:
		return shorterThan(at, name, maxName)
	case !namePattern.MatchString(name):
		return invalid(at, "invalid_value", "Invalid '%s': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", at)
	}
	return nil
}

// checkParameters says what is wrong with the parameters of a function, or "".
func checkParameters(raw json.RawMessage, strict bool) string {
	var s schema
	if json.Unmarshal(raw, &s) != nil {
		return "schema must be a JSON Schema object."
	}
	if kind := s.types(); s["type"] == nil || len(kind) != 1 || kind[0] != "object" {
		got := "None"
		if s["type"] != nil {
			got = strings.Join(kind, ", ")
		}
		return fmt.Sprintf(`schema must be a JSON Schema of 'type: "object"', got 'type: "%s"'.`, got)
	}
	if s["properties"] == nil {
		return "In context=(), object schema missing properties."
	}
	return checkSchema(s, strict)
}

var kinds = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// checkSchema looks for what a provider refuses, at any depth: types that there are not,
// lists without items, and in strict mode objects that are not closed. at is where it
// looks, "" if there is nothing to say.
func checkSchema(s schema, strict bool, at ...string) string {
	say := func(format string, args ...any) string {
		return "In context=" + tuple(at) + ", " + fmt.Sprintf(format, args...)
	}
	for _, kind := range s.types() {
		if !slices.Contains(kinds, kind) {
			return say("'%s' is not valid under any of the given schemas.", kind)
		}
		if kind == "array" && s["type"] != nil && s["items"] == nil && s["prefixItems"] == nil {
			return say("array schema missing items.")
		}
		if kind != "object" || !strict {
			continue
		}
		if string(s["additionalProperties"]) != "false" {
			return say("'additionalProperties' is required to be supplied and to be false.")
		}
		required := read[[]string](s, "required")
		for _, m := range s.properties() {
			if !slices.Contains(required, m.Name) {
				return say("'required' is required to be supplied and to be an array including every key in properties. Missing '%s'.", m.Name)
			}
		}
	}
	for _, keyword := range []string{"properties", "$defs", "definitions"} {
		for _, m := range (schema{"properties": s[keyword]}).properties() {
			if reason := checkSchema(readSchema(m.Value), strict, slices.Concat(at, []string{keyword, m.Name})...); reason != "" {
				return reason
			}
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		for i, raw := range read[[]json.RawMessage](s, keyword) {
			if reason := checkSchema(readSchema(raw), strict, slices.Concat(at, []string{keyword, strconv.Itoa(i)})...); reason != "" {
				return reason
			}
		}
	}
	if items := s["items"]; items != nil {
		return checkSchema(readSchema(items), strict, slices.Concat(at, []string{"items"})...)
	}
	return ""
}

// tuple writes a path as OpenAI does, whose server is written in Python.
func tuple(path []string) string {
	quoted := "'" + strings.Join(path, "', '") + "'"
	switch len(path) {
	case 0:
		return "()"
	case 1:
		return "(" + quoted + ",)"
	}
	return "(" + quoted + ")"
}
