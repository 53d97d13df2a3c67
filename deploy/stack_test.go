//go:build sam

package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// stackName is also the namespace of the metrics.
const stackName = "fuse"

// object is a JSON object.
type object = map[string]any

// transformed transforms templates in one run of the SAM translator, which takes a
// second to start.
func transformed(t *testing.T, files ...string) []object {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), samPython(t), append([]string{"transform.py"}, files...)...)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	check.Must(t, err == nil, "transform.py: %v\n%s", err, failed.Bytes())
	var templates []object
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var one object
		check.OK(t, d.Decode(&one))
		templates = append(templates, one)
	}
	check.Must(t, len(templates) == len(files), "%d templates of %d files", len(templates), len(files))
	return templates
}

var ours struct {
	once     sync.Once
	template object
}

// template is the project's, transformed.
func template(t *testing.T) object {
	t.Helper()
	ours.once.Do(func() { ours.template = transformed(t, file)[0] })
	check.Must(t, ours.template != nil, "the template could not be transformed")
	return ours.template
}

// samPython is the Python that runs the AWS SAM CLI, and so has its translator: the one
// that its script names, or, where that path is too long for a script, the one beside it.
func samPython(t *testing.T) string {
	t.Helper()
	sam, err := exec.LookPath("sam")
	if err != nil {
		t.Fatal("the AWS SAM CLI is needed (pip install aws-sam-cli): ", err)
	}
	if sam, err = filepath.EvalSymlinks(sam); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(sam)
	check.OK(t, err)
	first, _, _ := strings.Cut(string(script), "\n")
	if words := strings.Fields(strings.TrimPrefix(first, "#!")); len(words) > 0 && strings.Contains(words[len(words)-1], "python") {
		return words[len(words)-1]
	}
	python, err := exec.LookPath(filepath.Join(filepath.Dir(sam), "python"))
	check.Must(t, err == nil, "%s has no Python of its own (install the AWS SAM CLI with pip): %v", sam, err)
	return python
}

// stack is a transformed template with its parameters and conditions filled in. A
// reference to a resource is <Name>, to an attribute <Name.Attribute>.
type stack struct {
	template   object
	parameters object
	resources  map[string]object // those whose condition holds, resolved
	outputs    map[string]string
}

// Who and where the stack is.
var pseudo = map[string]string{
	"AWS::Region": "eu-central-1", "AWS::AccountId": "123456789012", "AWS::Partition": "aws",
	"AWS::URLSuffix": "amazonaws.com", "AWS::StackName": stackName, "AWS::StackId": "<AWS::StackId>",
}

// none is what Ref: AWS::NoValue leaves out.
type none struct{}

// newStack fills in a template; parameters are name, value, ...
func newStack(template object, parameters ...string) *stack {
	s := &stack{template: template, parameters: object{}, resources: map[string]object{}, outputs: map[string]string{}}
	for name, p := range at(template, "Parameters").(object) {
		s.parameters[name] = p.(object)["Default"]
	}
	for i := 0; i < len(parameters); i += 2 {
		s.parameters[parameters[i]] = parameters[i+1]
	}
	for name, v := range s.parameters {
		if at(template, "Parameters", name, "Type") == "CommaDelimitedList" {
			s.parameters[name] = []any{}
			for _, one := range strings.Split(v.(string), ",") {
				s.parameters[name] = append(s.parameters[name].([]any), one)
			}
		}
	}
	for name, r := range at(template, "Resources").(object) {
		if s.holds(r.(object)["Condition"]) {
			s.resources[name] = s.resolve(r).(object)
		}
	}
	for name, o := range at(template, "Outputs").(object) {
		if s.holds(o.(object)["Condition"]) {
			s.outputs[name] = s.resolve(o.(object)["Value"]).(string)
		}
	}
	return s
}

// holds evaluates a condition by its name; without one it holds.
func (s *stack) holds(condition any) bool {
	if condition == nil {
		return true
	}
	return s.resolve(at(s.template, "Conditions", condition.(string))).(bool)
}

var variable = regexp.MustCompile(`\$\{([A-Za-z0-9:._]+)\}`)

// resolve fills in what a value refers to.
func (s *stack) resolve(v any) any {
	switch v := v.(type) {
	case []any:
		list := []any{}
		for _, one := range v {
			if one = s.resolve(one); one != (none{}) {
				list = append(list, one)
			}
		}
		return list
	case object:
		if len(v) == 1 {
			for function, argument := range v {
				if result, ok := s.function(function, argument); ok {
					return result
				}
			}
		}
		o := object{}
		for key, one := range v {
			if one = s.resolve(one); one != (none{}) {
				o[key] = one
			}
		}
		return o
	}
	return v
}

func (s *stack) function(name string, argument any) (result any, ok bool) {
	list, _ := argument.([]any)
	switch name {
	case "Ref":
		return s.ref(argument.(string)), true
	case "Fn::GetAtt":
		return fmt.Sprintf("<%s.%s>", list[0], list[1]), true
	case "Fn::Sub":
		text, own := argument, object{}
		if list != nil {
			text, own = list[0], s.resolve(list[1]).(object)
		}
		return variable.ReplaceAllStringFunc(text.(string), func(found string) string {
			name := variable.FindStringSubmatch(found)[1]
			if v, ok := own[name]; ok {
				return fmt.Sprint(v)
			}
			return fmt.Sprint(s.ref(name))
		}), true
	case "Fn::Join":
		var parts []string
		for _, one := range s.resolve(list[1]).([]any) {
			parts = append(parts, fmt.Sprint(one))
		}
		return strings.Join(parts, list[0].(string)), true
	case "Fn::If":
		if s.holds(list[0]) {
			return s.resolve(list[1]), true
		}
		return s.resolve(list[2]), true
	case "Fn::Not":
		return !s.resolve(list[0]).(bool), true
	case "Condition":
		return s.holds(argument), true
	case "Fn::Or", "Fn::And":
		for _, one := range list {
			if s.resolve(one).(bool) == (name == "Fn::Or") {
				return name == "Fn::Or", true
			}
		}
		return name == "Fn::And", true
	case "Fn::Equals":
		return fmt.Sprint(s.resolve(list[0])) == fmt.Sprint(s.resolve(list[1])), true
	}
	if strings.HasPrefix(name, "Fn::") {
		panic("the tests cannot resolve " + name)
	}
	return nil, false
}

func (s *stack) ref(name string) any {
	if name == "AWS::NoValue" {
		return none{}
	}
	if v, ok := pseudo[name]; ok {
		return v
	}
	if v, ok := s.parameters[name]; ok {
		return v
	}
	return "<" + name + ">"
}

// at gives the value under keys, nil if there is none.
func at(v any, keys ...string) any {
	for _, key := range keys {
		o, ok := v.(object)
		if !ok {
			return nil
		}
		v = o[key]
	}
	return v
}

// get is at in the properties of a resource.
func (s *stack) get(resource string, keys ...string) any {
	return at(s.resources[resource], append([]string{"Properties"}, keys...)...)
}

// ofType are the resources of a type, sorted.
func (s *stack) ofType(kind string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.resources)) {
		if s.resources[name]["Type"] == kind {
			names = append(names, name)
		}
	}
	return names
}

// list makes a list of what IAM allows to be one thing or a list of them.
func list(v any) []any {
	if l, ok := v.([]any); ok || v == nil {
		return l
	}
	return []any{v}
}

// texts is list of strings.
func texts(v any) []string {
	var all []string
	for _, one := range list(v) {
		all = append(all, fmt.Sprint(one))
	}
	return all
}
