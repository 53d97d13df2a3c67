package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/usage"
)

// answer is what was reported of a real call beside what we count for it.
type answer struct {
	usage.Call
	counted int64
}

func (a answer) ratio() float64 { return float64(a.counted) / float64(a.Reported) }

// group says with which answers a fits together.
func (a answer) group() string {
	what := "text"
	switch {
	case a.Images != "":
		what = "images"
	case len(a.Tools) > 0 || slices.ContainsFunc(a.Messages, func(m openai.Message) bool { return len(m.ToolCalls) > 0 || m.ToolCallID != "" }):
		what = "tools"
	}
	return fmt.Sprintf("%s by %s, %s", what, a.Kind, a.Tokenizer)
}

// name says where a was published, without the folders, and by which model.
func (a answer) name() string {
	where, file, _ := strings.Cut(a.Source, " ")
	return fmt.Sprintf("%s, %s of %s", a.Model, path.Base(file), strings.TrimPrefix(where, "github.com/"))
}

// publishedCounts compares the count of tools, their calls and images with what real
// answers reported. Nobody is billed what was not reserved unless a report is above its
// count. The worst stand first: of those of a kind with exact tokens, the one counted most
// above; of the others, the one counted least.
func publishedCounts(_ context.Context, l *lab) ([]table, error) {
	columns := []column{{"reported", 0}, {"counted", 0}, {"ratio", 2}}
	summary := table{Title: "Counted input against what real answers reported (testkit/usage)",
		Columns: []column{{"answers", 0}, {"least ratio", 2}, {"median", 2}, {"largest", 2}, {"above the count", 0}}}
	calls, err := usage.Calls()
	if err != nil {
		return nil, err
	}
	groups := map[string][]answer{}
	for _, c := range calls {
		counted, err := c.Counted()
		if err != nil {
			return nil, err
		}
		a := answer{c, counted}
		groups[a.group()] = append(groups[a.group()], a)
	}
	tables := []table{{}}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		list := groups[name]
		slices.SortFunc(list, func(a, b answer) int { return cmp.Compare(a.ratio(), b.ratio()) })
		above := 0
		for _, a := range list {
			if a.Reported > a.counted {
				above++
			}
		}
		summary.add(name, float64(len(list)), list[0].ratio(), list[len(list)/2].ratio(), list[len(list)-1].ratio(), float64(above))
		summary.expect(exactly, 0)

		if list[0].Tokenizer != "upper_bound" {
			slices.Reverse(list)
		}
		if !l.long {
			list = list[:min(5, len(list))]
		}
		t := table{Title: "Worst of " + name, Columns: columns}
		for _, a := range list {
			t.add(a.name(), float64(a.Reported), float64(a.counted), a.ratio())
		}
		tables = append(tables, t)
	}
	tables[0] = summary
	return tables, nil
}
