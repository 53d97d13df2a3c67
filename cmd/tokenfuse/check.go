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
	p, err := policy.Load(c.Config)
	var problems policy.Problems
	if errors.As(err, &problems) {
		for _, problem := range problems {
			fmt.Fprintf(s.out, "%s: %s\n", c.Config, problem)
		}
		return fmt.Errorf("%s has %d mistake(s)", c.Config, len(problems))
	}
	if err != nil {
		return err
	}
	for _, note := range p.Notes() {
		fmt.Fprintf(s.out, "note: %s\n", note)
	}
	fmt.Fprintf(s.out, "%s is right: %d features, %d tiers, %d models.\n", c.Config, len(p.Features), len(p.Tiers), len(p.Models))
	return nil
}
