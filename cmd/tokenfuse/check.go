package main

import (
	"errors"
	"fmt"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

type checkCommand struct {
	Config string `default:"tokenfuse.yaml" help:"The configuration's file."`
}

func (c *checkCommand) Run(s streams) error {
	said := s
	said.err = s.out // mistakes are the answer
	p, err := load(c.Config, said)
	if err != nil {
		return err
	}
	if s.json {
		return s.answer(struct {
			Config   string   `json:"config"`
			Features int      `json:"features"`
			Tiers    int      `json:"tiers"`
			Models   int      `json:"models"`
			Notes    []string `json:"notes"`
		}{c.Config, len(p.Features), len(p.Tiers), len(p.Models), append([]string{}, p.Notes()...)})
	}
	for _, note := range p.Notes() {
		fmt.Fprintf(s.out, "note: %s\n", note)
	}
	fmt.Fprintf(s.out, "%s is right: %d features, %d tiers, %d models.\n", c.Config, len(p.Features), len(p.Tiers), len(p.Models))
	return nil
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
