package main

import "github.com/tokenfuse/tokenfuse/internal/policy"

type schemaCommand struct{}

func (*schemaCommand) Run(s streams) error {
	_, err := s.out.Write(policy.Schema())
	return err
}
