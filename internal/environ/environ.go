// Package environ reads what a function's environment tells it.
package environ

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/version"
)

// Need reads a variable that must be set; what says what it is, after its name.
func Need(name, what string) (string, error) {
	if v := os.Getenv(name); v != "" {
		return v, nil
	}
	return "", fmt.Errorf("%s is not set: it %s", name, what)
}

// Config is the file of the configuration, TOKENFUSE_CONFIG or tokenfuse.yaml.
func Config() string { return cmp.Or(os.Getenv("TOKENFUSE_CONFIG"), "tokenfuse.yaml") }

// MetricsNamespace is the namespace of CloudWatch's metrics, METRICS_NAMESPACE or
// tokenfuse: one for each deployment of an account, or they add up.
func MetricsNamespace() string { return cmp.Or(os.Getenv("METRICS_NAMESPACE"), "tokenfuse") }

// startTime is what a function may take to be ready, counted from the start of its
// process. Lambda gives it 10 s; the last of them is for saying what is missing.
const startTime = 9 * time.Second

// started is about when the process was.
var started = time.Now()

// Starting bounds what a function waits for before it is ready: the context ends 9 s
// after the start of the process.
func Starting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, started.Add(startTime))
}

// waited is how long the start has waited for the network.
var waited time.Duration

// Waiting runs what waits for the network during a start. The line of the start tells how
// long that took, since it says nothing about the function. Not for concurrent use.
func Waiting(wait func()) {
	begun := time.Now()
	wait()
	waited += time.Since(begun)
}

// Draining is a handler of a process that may have many calls at a time (Lambda Managed
// Instances), and of what is to be done when that must end.
type Draining struct {
	Handler any
	Idle    func(context.Context) error // waits until no call is under way
	Stopped error                       // the cause with which calls are ended that do not end by themselves
	Close   func(context.Context)       // the last of all
}

// Lambda kills a process of Managed Instances 600 ms after SIGTERM, as its emulator does
// (aws-lambda-runtime-interface-emulator, defaultRuntimeShutdownTimeout). Most of that is
// for settling calls: to lose one costs its worst case until its hold expires.
const (
	drainTime  = 100 * time.Millisecond // for calls that are about to end
	settleTime = 5 * time.Second        // as long as we are let
)

// drain ends a process in order.
func (d Draining) drain(end context.CancelCauseFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	cut := d.Idle(ctx) != nil
	if cut {
		end(d.Stopped)
	}
	settling, done := context.WithTimeout(context.Background(), settleTime)
	defer done()
	err := d.Idle(settling)
	d.Close(settling)
	slog.Info("the function ends", "calls_cut", cut, "all_settled", err == nil)
	os.Exit(0)
}

// Serve builds a Lambda handler and serves it, with a JSON log on standard output, in
// which a start is a line with the version, and with how long it took and waited; and a
// metric, by which the starts of a release are counted. A function that cannot be built
// says why and ends the process, which Lambda reports as a failed start.
func Serve(build func(context.Context) (handler any, err error)) {
	slog.SetDefault(NewLog(os.Stdout))
	handler, err := build(context.Background())
	if err != nil {
		slog.Error("the function cannot start", "version", version.Number, "error", whole(err.Error()))
		os.Exit(1)
	}
	slog.Info("the function starts", "version", version.Number, "ms", milliseconds(time.Since(started)), "waited_ms", milliseconds(waited))
	emf.New(os.Stdout, MetricsNamespace(), time.Now).Write(emf.Group{
		Dimensions: []emf.Dimension{{Name: "Release", Value: version.Number}}, Metrics: []emf.Metric{{Name: "Starts", Unit: emf.Count, Value: 1}}})
	d, ok := handler.(Draining)
	if !ok {
		lambda.Start(handler)
		return
	}
	if !Many() {
		// SIGTERM does not come: only for an extension would Lambda send it. And nothing is
		// under way in a process that is frozen between calls.
		lambda.Start(d.Handler)
		return
	}
	base, end := context.WithCancelCause(context.Background())
	lambda.StartWithOptions(d.Handler, lambda.WithContext(base), lambda.WithEnableSIGTERM(func() { d.drain(end) }))
}

// Many reports whether the process may have many calls at a time, as on Lambda Managed
// Instances. It then lives for days, and is never frozen.
func Many() bool { return lambdacontext.MaxConcurrency() > 1 }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
