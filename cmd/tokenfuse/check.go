package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

type checkCommand struct {
	Config string `default:"tokenfuse.yaml" help:"The configuration's file."`
}

func (c *checkCommand) Run(s streams) error {
	p, err := load(c.Config, s.out)
	if err != nil {
		return err
	}
	for _, note := range p.Notes() {
		fmt.Fprintf(s.out, "note: %s\n", note)
	}
	fmt.Fprintf(s.out, "%s is right: %d features, %d tiers, %d models.\n", c.Config, len(p.Features), len(p.Tiers), len(p.Models))
	return nil
}

// load reads a configuration. It writes its mistakes to w, a line each.
func load(file string, w io.Writer) (*policy.Policy, error) {
	p, err := policy.Load(file)
	problems, ok := errors.AsType[policy.Problems](err)
	if !ok {
		return p, err
	}
	for _, problem := range problems {
		fmt.Fprintf(w, "%s: %s\n", file, problem)
	}
	if len(problems) == 1 {
		return nil, fmt.Errorf("%s has 1 mistake", file)
	}
	return nil, fmt.Errorf("%s has %d mistakes", file, len(problems))
}
