package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// pricesCommand is exact: a price differs if any digit does.
type pricesCommand struct {
	Files []string `arg:"" optional:"" default:"tokenfuse.yaml" help:"Configurations, or files that have providers and models alone."`
	Meant []string `help:"Models whose prices are meant to differ, such as by a discount of yours." placeholder:"MODEL"`
	On    string   `help:"The day whose prices are compared (default: today)." placeholder:"YYYY-MM-DD"`
}

func (c *pricesCommand) Run(ctx context.Context, s streams) error {
	if c.On == "" {
		c.On = time.Now().Format(time.DateOnly)
	}
	if _, err := time.Parse(time.DateOnly, c.On); err != nil {
		return fmt.Errorf("--on must be a day such as %s, not %.32q", time.DateOnly, c.On)
	}
	same := true
	for _, file := range c.Files {
		models, err := pricedModels(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		found, err := askPublished(ctx, ".", c.On, models)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		same = reportPrices(s.out, file, models, found, c.Meant) && same
	}
	if !same {
		return errors.New("prices differ from what is published")
	}
	return nil
}

// pricedModels reads the models of a configuration, or of a file that has providers
// and models alone, by name.
func pricedModels(file string) ([]*policy.Model, error) {
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

//go:embed prices_published.mjs
var publishedScript string

// askPublished has Node say what the package of published prices knows of models on
// a day. The package is one that Node finds from folder.
func askPublished(ctx context.Context, folder, day string, models []*policy.Model) ([]*published, error) {
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
		asked.Models = append(asked.Models, question{string(m.Provider.Kind), m.Provider.BaseURL, m.ID})
	}
	input, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", "--input-type=module", "--eval", publishedScript)
	node.Dir = folder
	node.Stdin = bytes.NewReader(input)
	output, err := node.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("published prices: node: %w\n%s", err, failed.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("published prices: %w", err)
	}
	var found []*published
	if err := json.Unmarshal(output, &found); err != nil {
		return nil, fmt.Errorf("published prices: %w", err)
	}
	if len(found) != len(models) {
		return nil, fmt.Errorf("published prices: %d answers for %d models", len(found), len(models))
	}
	return found, nil
}

// reportPrices writes a line for each model, with its differences. It is true if
// nothing differs that is not meant to.
func reportPrices(w io.Writer, file string, models []*policy.Model, found []*published, meant []string) bool {
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
		differences := comparePrices(m.Prices, found[i].Prices)
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
