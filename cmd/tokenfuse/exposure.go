package main

import (
	"encoding/json"

	"github.com/tokenfuse/tokenfuse/internal/exposure"
)

type exposureCommand struct {
	Config string `default:"tokenfuse.yaml" help:"The configuration's file."`
	JSON   bool   `name:"json" help:"Print JSON; amounts are decimal strings, null for no bound."`
}

func (c *exposureCommand) Run(s streams) error {
	p, err := load(c.Config, s.err)
	if err != nil {
		return err
	}
	report := exposure.Of(p)
	if c.JSON {
		out := json.NewEncoder(s.out)
		out.SetIndent("", "  ")
		return out.Encode(report)
	}
	return report.Write(s.out)
}
