package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

type checkCommand struct {
	Config string   `default:"tokenfuse.yaml" help:"The configuration's file."`
	Tree   string   `help:"Also write what YAML makes of the file: named like it with .tree behind, and beside it, it saves the functions half a millisecond of their start." placeholder:"FILE"`
	Live   bool     `help:"Also make one small call to each model with the real key: does the key work, is there the model, is the input counted right, is the output cap obeyed? It says beforehand what that costs at most."`
	Model  []string `help:"With --live: only these models." placeholder:"MODEL"`
}

func (c *checkCommand) Run(ctx context.Context, s streams) error {
	said := s
	said.err = s.out // mistakes are the answer
	p, err := load(c.Config, said)
	if err != nil {
		return err
	}
	if !s.json {
		for _, note := range p.Notes() {
			fmt.Fprintf(s.out, "note: %s\n", note)
		}
		for _, open := range p.Access() {
			fmt.Fprintf(s.out, "open: %s\n", open)
		}
		fmt.Fprintf(s.out, "%s is right: %d features, %d tiers, %d models.\n", c.Config, len(p.Features), len(p.Tiers), len(p.Models))
	}
	if c.Tree != "" {
		if err := writeTree(c.Config, c.Tree); err != nil {
			return err
		}
	}
	var called *live
	if c.Live {
		if called, err = c.live(ctx, s, p); err != nil {
			return err
		}
	}
	switch {
	case s.json:
		err = s.answer(struct {
			Config   string   `json:"config"`
			Features int      `json:"features"`
			Tiers    int      `json:"tiers"`
			Models   int      `json:"models"`
			Notes    []string `json:"notes"`
			Open     []string `json:"open"`
			Live     *live    `json:"live,omitempty"`
		}{c.Config, len(p.Features), len(p.Tiers), len(p.Models), append([]string{}, p.Notes()...), append([]string{}, p.Access()...), called})
	case called != nil:
		called.write(s)
	}
	if err == nil && called != nil {
		err = called.failure()
	}
	return err
}

// writeTree writes the tree of a configuration that is right.
func writeTree(config, to string) error {
	data, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	tree, err := policy.Tree(data)
	if err != nil {
		return err
	}
	return os.WriteFile(to, tree, 0o644)
}

// load reads a configuration. It writes its mistakes to s.err, a line each; for programs
// the error has them.
func load(file string, s streams) (*policy.Policy, error) {
	p, err := policy.Load(file)
	problems, ok := errors.AsType[policy.Problems](err)
	if !ok {
		return p, err
	}
	failed := &failure{Code: "mistakes", Message: fmt.Sprintf("%s has %d mistakes", file, len(problems))}
	if len(problems) == 1 {
		failed.Message = fmt.Sprintf("%s has 1 mistake", file)
	}
	for _, problem := range problems {
		failed.Mistakes = append(failed.Mistakes, fmt.Sprint(problem))
		if !s.json {
			fmt.Fprintf(s.err, "%s: %s\n", file, problem)
		}
	}
	return nil, failed
}
