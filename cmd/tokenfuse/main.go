// Command tokenfuse runs the bundle on a laptop, makes tokens for trying it, checks a
// configuration and its prices, and is what support and whoever is on call use
// against a deployment.
//
// Exit codes: 0 done, 1 the answer is no or the input is wrong, 2 usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/tokenfuse/tokenfuse/internal/version"
)

const (
	exitNo    = 1
	exitUsage = 2
)

type commands struct {
	Version kong.VersionFlag `help:"Show the version."`

	Dev        devCommand        `cmd:"" help:"Run everything on this machine: real handlers behind a stand-in for API Gateway, a DynamoDB-compatible engine, an issuer of tokens and, without a provider key, a built-in model."`
	Check      checkCommand      `cmd:"" help:"Check a configuration: exit 1 and every mistake with its line."`
	Schema     schemaCommand     `cmd:"" help:"Print the JSON Schema of a configuration, by which editors complete and check it."`
	Exposure   exposureCommand   `cmd:"" help:"Worst-case dollars an hour: of one client, one network, one user, all anonymous callers and everybody, today and with this configuration."`
	Prices     pricesCommand     `cmd:"" help:"Compare prices with those that npm's @pydantic/genai-prices publishes: exit 1 if any digit differs. It needs Node, and the package in this folder or above it."`
	ClearLimit clearLimitCommand `cmd:"" help:"Unblock somebody: make their limits full again."`
	Limits     limitsCommand     `cmd:"" help:"Show somebody's limits."`
	Fuse       fuseCommand       `cmd:"" help:"Show or set the fuse of a deployment."`
	Token      tokenCommand      `cmd:"" help:"Print a token of the issuer that dev runs."`
}

// streams are where a command writes.
type streams struct{ out, err io.Writer }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdout, os.Stderr}))
}

func run(ctx context.Context, args []string, s streams) int {
	exited := -1
	parser := kong.Must(&commands{},
		kong.Name("tokenfuse"),
		kong.Description("A spending fuse in front of an AI feature."),
		kong.Writers(s.out, s.err),
		kong.Exit(func(code int) { exited = code }), // of --help and --version
		kong.Vars{"version": "tokenfuse " + build()},
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(s),
	)
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		fmt.Fprintf(s.err, "tokenfuse: %v\nTry: %s --help\n", err, commandOf(err))
		return exitUsage
	}
	if err := command.Run(); err != nil {
		fmt.Fprintf(s.err, "tokenfuse: %v\n", err)
		return exitNo
	}
	return 0
}

// build is the version and, if the build knows it, the commit that was built.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return version.Number
	}
	return version.Number + " (" + info.Main.Version + ")"
}

// commandOf is as much of the command as could be told from wrong arguments.
func commandOf(err error) string {
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok && wrong.Context.Selected() != nil {
		return wrong.Context.Selected().FullPath()
	}
	return "tokenfuse"
}
