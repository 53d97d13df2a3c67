// Package lambda tests the programs that are deployed: the three functions, built as
// for Lambda and run as Lambda runs them, by the runtime API, on real events of API
// Gateway and of the schedule.
//
// A function that does what the runtime API would refuse fails its test.
package lambda

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// scratch is the folder of the built functions.
var scratch string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "tokenfuse-lambda-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return enginetest.Main(m)
}

// program gives the path of a function, built as for deployment, but for this machine.
func program(t *testing.T, name string) string {
	t.Helper()
	check.OK(t, buildAll())
	return scratch + "/" + name
}

// buildAll is not in TestMain because fuzzing starts processes that need no programs.
var buildAll = sync.OnceValue(func() error {
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", "lambda.norpc", "-o", scratch+"/", "./functions/...")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the functions: %w\n%s", err, out)
	}
	return nil
})
