//go:build sam

package deploy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// grant is one thing that a role may do: an action on a resource, and, where the
// condition names keys, on one pattern of them.
type grant struct {
	action, resource, key string // key "": any
}

// grants are all that a function's role allows, of its managed policies too.
func (s *stack) grants(function string) []grant {
	role := strings.Trim(strings.TrimSuffix(s.get(function, "Role").(string), ".Arn>"), "<>")
	documents := []any{}
	for _, p := range list(s.get(role, "Policies")) {
		documents = append(documents, at(p, "PolicyDocument"))
	}
	for _, managed := range texts(s.get(role, "ManagedPolicyArns")) {
		documents = append(documents, s.get(strings.Trim(managed, "<>"), "PolicyDocument"))
	}
	var all []grant
	for _, d := range documents {
		for _, statement := range list(at(d, "Statement")) {
			all = append(all, grantsOf(statement)...)
		}
	}
	return all
}

func grantsOf(statement any) []grant {
	keys := texts(at(statement, "Condition", "ForAllValues:StringLike", "dynamodb:LeadingKeys"))
	if len(keys) == 0 {
		keys = []string{""}
	}
	var all []grant
	for _, action := range texts(at(statement, "Action")) {
		for _, resource := range texts(at(statement, "Resource")) {
			for _, key := range keys {
				all = append(all, grant{action, resource, key})
			}
		}
	}
	return all
}

// allows reports whether g allows an action on a resource, of the key if there is one.
func (g grant) allows(action, resource, key string) bool {
	return g.action == action && g.resource == resource && (g.key == "" || like(g.key, key))
}

// like is IAM's StringLike: * stands for anything, ? for one character.
func like(pattern, s string) bool {
	expression := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?s)^` + expression + `$`).MatchString(s)
}

// tooWide says what statements anywhere in the stack allow too much: actions by
// pattern, or all resources, but for those that have none: PutMetricData in our
// namespace, and GetMetricData, which knows no condition either.
func (s *stack) tooWide() []string {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(s.resources)) {
		if s.resources[name]["Type"] == "AWS::KMS::Key" {
			continue // the resource of a key's policy is the key
		}
		walk(s.resources[name], func(o object) {
			if o["Effect"] != "Allow" || o["Action"] == nil || o["Action"] == "sts:AssumeRole" {
				return
			}
			actions, resources := texts(o["Action"]), texts(o["Resource"])
			ours := slices.Equal(actions, []string{"cloudwatch:GetMetricData"}) || slices.Equal(actions, []string{"cloudwatch:PutMetricData"}) &&
				at(o, "Condition", "StringEquals", "cloudwatch:namespace") == stackName
			for _, action := range actions {
				if strings.Contains(action, "*") {
					problems = append(problems, fmt.Sprintf("%s allows %s", name, action))
				}
			}
			for _, resource := range resources {
				if (resource == "*" || strings.HasPrefix(resource, "arn:aws:dynamodb") || strings.HasSuffix(resource, ":*")) && !ours {
					problems = append(problems, fmt.Sprintf("%s allows %v on %s", name, actions, resource))
				}
			}
		})
	}
	return problems
}

// walk calls do for each object in v.
func walk(v any, do func(object)) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			walk(one, do)
		}
	case object:
		do(v)
		for _, one := range v {
			walk(one, do)
		}
	}
}
