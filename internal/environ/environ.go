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

// Serve builds a Lambda handler and serves it, with a JSON log on standard output, in
// which a start is a line with the version, and with how long it took and waited. A function that cannot be built says why
// and ends the process, which Lambda reports as a failed start.
func Serve(build func(context.Context) (handler any, err error)) {
	slog.SetDefault(NewLog(os.Stdout))
	handler, err := build(context.Background())
	if err != nil {
		slog.Error("the function cannot start", "version", version.Number, "error", whole(err.Error()))
		os.Exit(1)
	}
	slog.Info("the function starts", "version", version.Number, "ms", milliseconds(time.Since(started)), "waited_ms", milliseconds(waited))
	lambda.Start(handler)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
