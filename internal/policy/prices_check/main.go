// Command prices_check compares the prices in configurations with those that
// npm's @pydantic/genai-prices publishes, and says what differs. It needs Node and
// the package, not the network.
//
// It is exact: a price differs if any digit does. Exit codes: 0 all that can be
// compared is the same, 1 something differs or went wrong, 2 usage. A difference
// that is meant, such as a discount of yours, is named with -meant.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

func main() {
	meant := flag.String("meant", "", "names of models whose prices are meant to differ, with commas between them")
	on := flag.String("on", time.Now().Format(time.DateOnly), "the day whose prices are compared")
	script := flag.String("published", filepath.FromSlash("internal/policy/prices_check/published.mjs"), "the script that reads the package")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: prices_check [flags] FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	same := true
	for _, file := range flag.Args() {
		models, err := load(file)
		if err == nil {
			var found []*published
			if found, err = ask(context.Background(), *script, *on, models); err == nil {
				same = report(os.Stdout, file, models, found, strings.Split(*meant, ",")) && same
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "prices_check: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
	if !same {
		os.Exit(1)
	}
}

// load reads the models of a configuration, or of a file that has providers and
// models alone, by name.
func load(file string) ([]*policy.Model, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var shape struct {
		Models   map[string]any
		Features any
	}
	if err := yaml.Unmarshal(data, &shape); err != nil {
		return nil, err
	}
	if names := slices.Sorted(maps.Keys(shape.Models)); shape.Features == nil && len(names) > 0 {
		// The rest of what a configuration needs.
		data = fmt.Appendf(data, "\nfeatures: {any: {model: %q, max_output_tokens: 1}}\n"+
			"tiers: {user: {max_input_tokens: 100, max_output_tokens: 1, limits: {requests: {capacity: 1, per: 1s}}}}\n", names[0])
	}
	p, err := policy.Parse(data)
	if err != nil {
		return nil, err
	}
	var models []*policy.Model
	for _, name := range slices.Sorted(maps.Keys(p.Models)) {
		models = append(models, p.Models[name])
	}
	return models, nil
}

// ask has the script say what the package knows of models on a day.
func ask(ctx context.Context, script, day string, models []*policy.Model) ([]*published, error) {
	type question struct {
		Kind    string `json:"kind"`
		BaseURL string `json:"base_url"`
		ID      string `json:"id"`
	}
	var asked struct {
		Date   string     `json:"date"`
		Models []question `json:"models"`
	}
	asked.Date = day
	for _, m := range models {
		asked.Models = append(asked.Models, question{m.Provider.Kind, m.Provider.BaseURL, m.ID})
	}
	input, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", script)
	node.Stdin = bytes.NewReader(input)
	output, err := node.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("node %s: %w\n%s", script, err, failed.Stderr)
	}
	if err != nil {
		return nil, err
	}
	var found []*published
	if err := json.Unmarshal(output, &found); err != nil {
		return nil, fmt.Errorf("node %s: %w", script, err)
	}
	if len(found) != len(models) {
		return nil, fmt.Errorf("node %s: %d answers for %d models", script, len(found), len(models))
	}
	return found, nil
}

// report writes a line for each model and each difference. It is true if nothing
// differs that is not meant to.
func report(w io.Writer, file string, models []*policy.Model, found []*published, meant []string) bool {
	same := true
	for i, m := range models {
		if found[i] == nil {
			fmt.Fprintf(w, "%s: %s: %s is not published there: check it by hand\n", file, m.Name, m.ID)
			continue
		}
		as := ""
		if found[i].ID != m.ID {
			as = " for " + found[i].ID
		}
		differences := compare(m.Prices, found[i].Prices)
		switch isMeant := slices.Contains(meant, m.Name); {
		case len(differences) == 0:
			fmt.Fprintf(w, "%s: %s: as published%s\n", file, m.Name, as)
		case isMeant:
			fmt.Fprintf(w, "%s: %s: differs from what is published%s, as meant: %s\n", file, m.Name, as, strings.Join(differences, "; "))
		default:
			same = false
			fmt.Fprintf(w, "%s: %s: DIFFERS from what is published%s: %s\n", file, m.Name, as, strings.Join(differences, "; "))
		}
	}
	return same
}
