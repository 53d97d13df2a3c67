// Command tokenfuse runs the bundle on a laptop, makes tokens for trying it, checks a
// configuration and its prices, and is what support and whoever is on call use
// against a deployment.
//
// Exit codes: 0 done, 1 the answer is no or the input is wrong, 2 usage.
//
// With --json the answer is one JSON value on standard output, and whatever keeps a
// command from answering is one JSON object on standard error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tokenfuse/tokenfuse/internal/span"
	"github.com/tokenfuse/tokenfuse/internal/version"
)

const (
	exitNo    = 1
	exitUsage = 2
)

type commands struct {
	Version kong.VersionFlag `help:"Show the version."`
	JSON    bool             `name:"json" help:"For programs: print the answer as JSON, and an error as a JSON object on standard error."`

	Dev        devCommand        `cmd:"" help:"Run everything on this machine: real handlers behind a stand-in for API Gateway, a DynamoDB-compatible engine, an issuer of tokens and, without a provider key, a built-in model."`
	Serve      serveCommand      `cmd:"" help:"Serve callers and administrators as a plain HTTP server, as a container or a virtual machine would, on DynamoDB or a compatible store, with spendalarm on its timer."`
	Check      checkCommand      `cmd:"" help:"Check a configuration: exit 1 and every mistake with its line."`
	Schema     schemaCommand     `cmd:"" help:"Print the JSON Schema of a configuration, by which editors complete and check it."`
	Exposure   exposureCommand   `cmd:"" help:"Worst-case dollars an hour: of one client, one network, one user, all anonymous callers and everybody, today and with this configuration."`
	Prices     pricesCommand     `cmd:"" help:"Compare prices with those that npm's @pydantic/genai-prices publishes: exit 1 if any digit differs. It needs Node, and the package in this folder or above it."`
	Status     statusCommand     `cmd:"" help:"Show how a deployment stands: spending, pools, fuse, blocks, denials, top spenders."`
	ClearLimit clearLimitCommand `cmd:"" help:"Unblock somebody: make their limits full again."`
	Limits     limitsCommand     `cmd:"" help:"Show somebody's limits."`
	Block      blockCommand      `cmd:"" help:"Refuse somebody for a time: 403 identity_blocked within seconds, in every process."`
	Unblock    unblockCommand    `cmd:"" help:"End a block."`
	Fuse       fuseCommand       `cmd:"" help:"Show or set the fuse of a deployment."`
	Audit      auditCommand      `cmd:"" help:"List what administrators changed, the newest first: who, whom, what, why."`
	Token      tokenCommand      `cmd:"" help:"Print a token of the issuer that dev runs."`
	Completion completionCommand `cmd:"" help:"Print a script by which a shell completes commands and flags."`
}

// streams are where a command writes, and how, and whom it can ask.
type streams struct {
	out, err io.Writer
	json     bool      // JSON is wanted
	person   io.Reader // who types at a terminal; nil: nobody is there
}

// answer prints an answer as JSON.
func (s streams) answer(v any) error { return json.NewEncoder(s.out).Encode(v) }

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // else whoever started it wants it to outlive the terminal
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	s := streams{out: os.Stdout, err: os.Stderr}
	if in, err := os.Stdin.Stat(); err == nil && in.Mode()&os.ModeCharDevice != 0 {
		s.person = os.Stdin
	}
	os.Exit(run(ctx, os.Args[1:], s))
}

func run(ctx context.Context, args []string, s streams) int {
	exited := -1
	s.json = slices.Contains(args, "--json") // also of what cannot be parsed
	shown := "tokenfuse " + build()
	if s.json {
		shown = fmt.Sprintf(`{"version":%q}`, build())
	}
	parser := kong.Must(&commands{},
		kong.Name("tokenfuse"),
		kong.Description("A spending fuse in front of an AI feature."),
		kong.Writers(s.out, s.err),
		kong.Exit(func(code int) { exited = code }), // of --help and --version
		kong.Vars{"version": shown},
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(duration)),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(s),
	)
	if len(args) > 0 && args[0] == completing {
		for _, word := range complete(parser.Model.Node, args[1:]) {
			fmt.Fprintln(s.out, word)
		}
		return 0
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		return s.fail(exitUsage, err, "Try: "+commandOf(err)+" --help")
	}
	if err := command.Run(); err != nil {
		return s.fail(exitNo, err, "")
	}
	return 0
}

// fail tells of an error, and gives the exit code back.
func (s streams) fail(exit int, err error, try string) int {
	if s.json {
		said := failure{Message: err.Error(), Code: "failed"}
		if exit == exitUsage {
			said.Code = "usage"
		}
		if known, ok := errors.AsType[*failure](err); ok {
			said = *known
		}
		_ = json.NewEncoder(s.err).Encode(map[string]failure{"error": said})
		return exit
	}
	fmt.Fprintf(s.err, "tokenfuse: %v\n", err)
	if try != "" {
		fmt.Fprintln(s.err, try)
	}
	return exit
}

// failure is an error of which programs are told more than its message.
type failure struct {
	Message  string   `json:"message"`
	Code     string   `json:"code"`               // the deployment's, or usage, mistakes, or failed
	Mistakes []string `json:"mistakes,omitempty"` // in a configuration
}

func (f *failure) Error() string { return f.Message }

// duration reads a flag's value, which may have days.
func duration(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := span.Parse(token.String())
	if err != nil {
		return fmt.Errorf("expected a duration such as 30m, 2h or 1d, but got %q", token)
	}
	target.Set(reflect.ValueOf(d))
	return nil
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
