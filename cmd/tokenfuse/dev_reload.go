package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/clock"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// lookEvery is how often the configuration is looked at. A change counts when it looks
// the same twice: editors do not write at once.
const lookEvery = 250 * time.Millisecond

// contents is the configuration's file as it is now; nil if it is none, but a pipe, whose
// text comes but once.
func (c *devCommand) contents() []byte {
	if info, err := os.Stat(c.Config); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := os.ReadFile(c.Config)
	if err != nil {
		return nil // whoever loads it says so
	}
	return text
}

// reload applies each change of the configuration's file, until ctx ends. read is what
// was read of it at the start.
func (c *devCommand) reload(ctx context.Context, s streams, read []byte, apply func(*policy.Policy) error) {
	last, missing := read, false
	clock.Every(ctx, lookEvery, func(context.Context) {
		seen, err := os.ReadFile(c.Config)
		if err != nil && !missing {
			fmt.Fprintf(s.out, "the configuration of before stays: %v\n", err)
		}
		if missing = err != nil; missing {
			return
		}
		settled := bytes.Equal(seen, last)
		last = seen
		if !settled || bytes.Equal(seen, read) {
			return
		}
		read = seen
		p, err := load(c.Config, s)
		if err == nil {
			err = apply(p)
		}
		if err != nil {
			fmt.Fprintf(s.out, "the configuration of before stays: %v\n", err)
			return
		}
		fmt.Fprintf(s.out, "reloaded %s\n", c.Config)
		c.showProviders(s.out, p)
		showFeatures(s.out, p)
	})
}
