package main

import (
	"encoding/json"

	"github.com/tokenfuse/tokenfuse/internal/exposure"
)

type exposureCommand struct {
	Config string `default:"tokenfuse.yaml" help:"The configuration's file."`
}

func (c *exposureCommand) Run(s streams) error {
	p, err := load(c.Config, s)
	if err != nil {
		return err
	}
	report := exposure.Of(p)
	if s.json { // amounts are decimal strings, null for no bound
		out := json.NewEncoder(s.out)
		out.SetIndent("", "  ")
		return out.Encode(report)
	}
	return report.Write(s.out)
}
