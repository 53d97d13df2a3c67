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
	var all []priced
	for _, file := range c.Files {
		models, err := pricedModels(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		found, err := askPublished(ctx, ".", c.On, models)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, comparedPrices(file, models, found, c.Meant)...)
	}
	if s.json {
		if err := s.answer(all); err != nil {
			return err
		}
	} else {
		writePrices(s.out, all)
	}
	if differ(all) {
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

// priced is what a comparison says of a model.
type priced struct {
	File        string   `json:"file"`
	Model       string   `json:"model"`
	ID          string   `json:"id"`
	PublishedID string   `json:"published_id"` // what it was taken for; "": it is not published there
	Differences []string `json:"differences"`
	Meant       bool     `json:"meant"` // to differ
}

// comparedPrices compares the models of a file with what was found of them.
func comparedPrices(file string, models []*policy.Model, found []*published, meant []string) []priced {
	var all []priced
	for i, m := range models {
		p := priced{File: file, Model: m.Name, ID: m.ID, Differences: []string{}, Meant: slices.Contains(meant, m.Name)}
		if found[i] != nil {
			p.PublishedID = found[i].ID
			p.Differences = append(p.Differences, comparePrices(m.Prices, found[i].Prices)...)
		}
		all = append(all, p)
	}
	return all
}

// differ reports whether a price differs that is not meant to.
func differ(all []priced) bool {
	return slices.ContainsFunc(all, func(p priced) bool { return len(p.Differences) > 0 && !p.Meant })
}

// writePrices writes a line for each model, with its differences.
func writePrices(w io.Writer, all []priced) {
	for _, p := range all {
		as := ""
		if p.PublishedID != p.ID {
			as = " for " + p.PublishedID
		}
		switch {
		case p.PublishedID == "":
			fmt.Fprintf(w, "%s: %s: %s is not published there: check it by hand\n", p.File, p.Model, p.ID)
		case len(p.Differences) == 0:
			fmt.Fprintf(w, "%s: %s: as published%s\n", p.File, p.Model, as)
		case p.Meant:
			fmt.Fprintf(w, "%s: %s: differs from what is published%s, as meant: %s\n", p.File, p.Model, as, strings.Join(p.Differences, "; "))
		default:
			fmt.Fprintf(w, "%s: %s: DIFFERS from what is published%s: %s\n", p.File, p.Model, as, strings.Join(p.Differences, "; "))
		}
	}
}
