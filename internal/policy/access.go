package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Access says what is open to whom: for each feature, by name, a line for the tiers that may
// send the same, such as "docqa for user, pro: text, images (up to 4)".
func (p *Policy) Access() []string {
	tiers := slices.SortedFunc(maps.Values(p.Tiers), func(a, b *Tier) int { return cmp.Compare(a.Rank, b.Rank) })
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(p.Features)) {
		f := p.Features[name]
		var takes []string
		of := map[string][]string{}
		for _, t := range tiers {
			if !f.AllowedFor(t.Name) || !p.Reached(t.Name) {
				continue
			}
			what := strings.Join(f.takes(t), ", ")
			if of[what] == nil {
				takes = append(takes, what)
			}
			of[what] = append(of[what], t.Name)
		}
		for _, what := range takes {
			lines = append(lines, fmt.Sprintf("%s for %s: %s", name, strings.Join(of[what], ", "), what))
		}
		if takes == nil {
			lines = append(lines, name+" for nobody")
		}
	}
	return lines
}

// takes is what callers of t may send to f.
func (f *Feature) takes(t *Tier) []string {
	if f.Model.Embeds {
		return []string{fmt.Sprintf("texts to embed (up to %d)", f.MaxInputs)}
	}
	list := []string{"text"}
	add := func(allowed bool, format string, args ...any) {
		if allowed {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(f.AllowSystem, "system messages")
	add(f.AllowResponseFormat, "response_format")
	add(f.AllowTools && t.MaxTools > 0, "tools (up to %d)", t.MaxTools)
	add(f.Tools != nil, "results of your own tools")
	images, how := min(f.MaxImages, t.MaxImages), ""
	if f.AllowImageURLs {
		how = ", by address too"
	}
	add(images > 0, "images (up to %d%s)", images, how)
	add(f.Efforts != nil, "reasoning_effort (%s)", strings.Join(f.Efforts, " or "))
	return list
}
