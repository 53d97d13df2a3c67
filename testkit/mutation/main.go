// Command mutation plants one bug after the other into a package and tells which of them
// its tests do not see.
//
//	go run ./testkit/mutation -package pkg/bucket
//
// A bug that changes nothing that anybody could see is equivalent. Those are listed in
// equivalent.txt with the reason, by what they are, so that they stay listed when lines
// move. An entry that stands for nothing any more, or for a bug that tests see, is an error.
//
// The tree is left alone: the compiler is shown the mutant in the file's place.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// plan says how the bugs of a package are looked for, beside its own tests.
type plan struct {
	slow  string   // tests of its own that come last
	above []string // packages whose tests may see what its own do not
}

var plans = map[string]plan{
	"pkg/bucket": {"TestStoreFollowsTheRule|TestPoolIsUsable|TestIdleClientGivesWay|TestStorm|TestCrowd|TestRefund|TestEveryOrder|TestClocksApart|TestSweepMeets|TestExpressionsFit|TestSeldom",
		[]string{"internal/admission"}},
	"internal/price":             {"", []string{"internal/policy", "internal/admission", "internal/exposure"}},
	"internal/admission":         {"", []string{"functions/generate/chatapi"}},
	"internal/ledger":            {"", []string{"functions/spendalarm/alarm"}},
	"functions/spendalarm/alarm": {"", nil},
}

//go:embed equivalent.txt
var equivalentText string

func main() {
	packages := flag.String("package", "internal/price", "the package's directory, or several with commas")
	every := flag.Int("every", 1, "try each nth mutant alone")
	first := flag.Int("first", 0, "the number of the first one")
	only := flag.String("only", "", "try those alone whose key has this in it")
	own := flag.Bool("own", false, "run the package's own tests alone")
	flag.Parse()
	failed := false
	for p := range strings.SplitSeq(*packages, ",") {
		ok, err := try(p, choice{*first, *every, *only, *own})
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutation:", err)
			os.Exit(1)
		}
		failed = failed || !ok
	}
	if failed {
		os.Exit(1)
	}
}

// equivalents are the reasons by package and key.
func equivalents(dir string) (map[string]string, error) {
	list := map[string]string{}
	key := ""
	lines := bufio.NewScanner(strings.NewReader(equivalentText))
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t"):
			if key == "" {
				return nil, fmt.Errorf("equivalent.txt: a reason without a mutant: %s", line)
			}
			if of, rest, _ := strings.Cut(key, "/"+filepath.Base(key[:strings.IndexByte(key, ' ')])); of == dir {
				list[filepath.Base(key[:strings.IndexByte(key, ' ')])+rest] = strings.TrimSpace(line)
			}
			key = ""
		default:
			if key != "" {
				return nil, fmt.Errorf("equivalent.txt: no reason for %s", key)
			}
			key = line
		}
	}
	return list, nil
}

// choice is which mutants are tried, and by which tests.
type choice struct {
	first, every int
	only         string
	own          bool
}

// try tries the mutants of a package. It reports whether each was caught or is explained.
func try(dir string, which choice) (bool, error) {
	scratch, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	all, err := mutantsOf(dir)
	if err != nil {
		return false, err
	}
	known, err := equivalents(dir)
	if err != nil {
		return false, err
	}
	t := trial{dir: dir, scratch: scratch, plan: plans[dir]}
	if which.own {
		t.above = nil
	}
	start := time.Now()
	if seen := t.see(nil); seen != survived {
		return false, fmt.Errorf("the tests of %s fail without any mutant: %s", dir, seen)
	}
	t.patience = 3*time.Since(start) + 20*time.Second
	counts := make(map[verdict]int)
	met, good := map[string]bool{}, true
	for i, m := range all {
		met[m.key()] = true
		if i < which.first || (i-which.first)%which.every != 0 || !strings.Contains(m.key(), which.only) {
			continue
		}
		reason := known[m.key()]
		v := t.see(&m)
		if v == survived && reason != "" {
			v = explained
		}
		counts[v]++
		switch {
		case v == survived:
			good = false
			fmt.Printf("SURVIVED %s/%s:%d %s\n\t- %s\n\t+ %s\n", dir, m.file, m.line, m.function, m.was(), m.is())
		case v == caught && reason != "":
			good = false
			fmt.Printf("CAUGHT, though equivalent.txt says that nobody can see it: %s/%s\n", dir, m.key())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if !met[key] {
			good = false
			fmt.Printf("STALE in equivalent.txt: %s/%s\n", dir, key)
		}
	}
	tried := counts[caught] + counts[survived] + counts[explained]
	fmt.Printf("%s: %d mutants, %d of which caught (%.1f%%), %d equivalent, %d survived; %d more do not compile\n",
		dir, tried, counts[caught], 100*float64(counts[caught])/float64(max(1, tried)), counts[explained], counts[survived], counts[broken])
	return good, nil
}

type verdict string

const (
	broken    verdict = "does not compile"
	caught    verdict = "caught"
	survived  verdict = "survived"
	explained verdict = "equivalent"
)

// trial is how mutants of a package are tried.
type trial struct {
	plan
	dir, scratch string
	patience     time.Duration // of the tests of a package; 0: none is known yet
}

// see runs the tests with a mutant, the fastest first, until some fail; nil: without one.
func (t *trial) see(m *mutant) verdict {
	overlay := filepath.Join(t.scratch, "overlay.json")
	replace := map[string]string{}
	if m != nil {
		whole, err := filepath.Abs(filepath.Join(t.dir, m.file))
		if err == nil {
			err = os.WriteFile(filepath.Join(t.scratch, "mutant.go"), m.mutated(), 0o600)
		}
		if err != nil {
			return broken
		}
		replace[whole] = filepath.Join(t.scratch, "mutant.go")
	}
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	if os.WriteFile(overlay, text, 0o600) != nil {
		return broken
	}
	for i, dir := range append([]string{t.dir}, t.above...) {
		program := filepath.Join(t.scratch, "tests")
		if exec.Command("go", "test", "-vet=off", "-overlay="+overlay, "-c", "-o", program, "./"+dir).Run() != nil { //nolint:gosec // the go command
			return broken
		}
		runs := [][]string{nil}
		if i == 0 && t.slow != "" {
			runs = [][]string{{"-test.skip", t.slow}, {"-test.run", t.slow}}
		}
		for _, args := range runs {
			if !t.passes(program, dir, args) {
				return caught
			}
		}
	}
	return survived
}

// passes runs a test program in its directory. One that hangs does not pass.
func (t *trial) passes(program, dir string, args []string) bool {
	ctx, cancel := context.WithCancel(context.Background())
	if t.patience > 0 {
		ctx, cancel = context.WithTimeout(context.Background(), t.patience)
	}
	defer cancel()
	c := exec.CommandContext(ctx, program, append([]string{"-test.failfast"}, args...)...) //nolint:gosec // what was compiled just now
	c.Dir = dir
	c.Env = append(os.Environ(), "GOGC=200")
	c.WaitDelay = time.Second
	err := c.Run()
	return err == nil || errors.Is(err, exec.ErrWaitDelay)
}
