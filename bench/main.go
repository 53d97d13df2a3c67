// Command bench measures what the project promises, against what a plain
// implementation does on the same machine in the same run, and prints each
// figure beside its goal. Run it in the repository's folder:
//
//	go run ./bench [-only TOPIC[,TOPIC]] [-long]
//
// Ratios and counts are what to look at: absolute times are those of this
// machine and of an engine beside it, not of AWS. The figures are also written
// to bench.json.
//
// A topic is a function that makes tables, in a file of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"
)

// topic is one thing to measure.
type topic struct {
	name string
	run  func(context.Context, *lab) ([]table, error)
}

var topics = []topic{
	{"trips", roundTrips},
	{"units", writeUnits},
	{"pools", poolWrites},
	{"latency", latency},
	{"storm", storm},
	{"request", requestCost},
	{"refusals", refusals},
	{"tokens", tokenCounting},
	{"counts", publishedCounts},
	{"ledger", ledgerSums},
	{"start", coldStart},
	{"memory", memory},
	{"serve", serving},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	only := flags.String("only", "", "topics to run, separated by commas (default: all of "+names()+")")
	config := flags.String("config", "tokenfuse.yaml", "configuration whose limits are used")
	out := flags.String("out", "bench.json", "file for the figures")
	long := flags.Bool("long", false, "measure also what takes minutes (the ledger with 1,000,000 events), and show all published usage")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	testing.Init() // for testing.Benchmark
	l, err := newLab(ctx, *config)
	if err != nil {
		return err
	}
	defer l.close()
	l.long = *long

	r := newReport()
	for _, t := range chosen {
		start := time.Now()
		tables, err := t.run(ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		for _, table := range tables {
			table.print(os.Stdout)
		}
		fmt.Printf("(%s: %.1f s)\n\n", t.name, time.Since(start).Seconds())
		r.Topics = append(r.Topics, measured{t.name, tables})
	}
	met, goals := r.goals()
	fmt.Printf("%d of %d goals met\n", met, goals)
	return r.write(*out)
}

func names() string {
	list := make([]string, len(topics))
	for i, t := range topics {
		list[i] = t.name
	}
	return strings.Join(list, ", ")
}

func choose(only string) ([]topic, error) {
	if only == "" {
		return topics, nil
	}
	var chosen []topic
	for _, name := range strings.Split(only, ",") {
		i := slices.IndexFunc(topics, func(t topic) bool { return t.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no topic %q: there are %s", name, names())
		}
		chosen = append(chosen, topics[i])
	}
	return chosen, nil
}
