package runtimeapi

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Function is the process of a function with its runtime API.
type Function struct {
	*API
	Started time.Time // when the process was about to be started

	server *http.Server
	cmd    *exec.Cmd
	log    lines
	exited chan struct{}
}

// Start starts a function's program in the folder of its code. It sees the variables
// that Lambda sets, those of env, and none of this process: no profile or key of the
// person who runs it. With AWS_LAMBDA_MAX_CONCURRENCY in env it has as many invocations at
// a time.
func Start(ctx context.Context, program, dir string, env ...string) (*Function, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	most := 1
	for _, v := range env {
		if n, ok := strings.CutPrefix(v, "AWS_LAMBDA_MAX_CONCURRENCY="); ok {
			if most, err = strconv.Atoi(n); err != nil {
				return nil, err
			}
		}
	}
	f := &Function{API: NewMany(most), exited: make(chan struct{})}
	f.server = &http.Server{Handler: f.API, ReadHeaderTimeout: time.Minute, ConnContext: holdLittle}
	go func() { _ = f.server.Serve(listener) }() // until it is closed

	f.cmd = exec.Command(program)
	f.cmd.Dir = dir
	f.cmd.Stdout, f.cmd.Stderr = &f.log, &f.log // CloudWatch gets both
	f.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"TZ=:UTC",
		"LANG=en_US.UTF-8",
		"AWS_LAMBDA_RUNTIME_API=" + listener.Addr().String(),
		"AWS_LAMBDA_FUNCTION_NAME=local",
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"AWS_EXECUTION_ENV=AWS_Lambda_provided.al2023",
		"LAMBDA_TASK_ROOT=" + dir,
		"_HANDLER=bootstrap",
		"AWS_REGION=us-east-1",
		"AWS_DEFAULT_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=AKIALOCAL",
		"AWS_SECRET_ACCESS_KEY=local",
		"AWS_SESSION_TOKEN=local",
	}, env...)
	f.Started = time.Now()
	if err := f.cmd.Start(); err != nil {
		_ = f.server.Close()
		return nil, err
	}
	go func() {
		_ = f.cmd.Wait() // how it ended is in ProcessState
		close(f.exited)
	}()
	return f, nil
}

// holdLittle bounds what the system takes in of an answer that nobody reads. Left to
// itself it may be tens of megabytes.
func holdLittle(ctx context.Context, c net.Conn) context.Context {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(64 << 10) // a failure only makes it more
	}
	return ctx
}

// Log is what the process has written so far.
func (f *Function) Log() string { return f.log.String() }

// Exited is closed when the process has ended.
func (f *Function) Exited() <-chan struct{} { return f.exited }

// State says how the process has ended. Call it after Exited is closed.
func (f *Function) State() *os.ProcessState { return f.cmd.ProcessState }

// Signal sends the process a signal.
func (f *Function) Signal(s os.Signal) error { return f.cmd.Process.Signal(s) }

// Close kills the process, as Lambda does with one that it needs no more, and waits
// for its end.
func (f *Function) Close() {
	_ = f.cmd.Process.Kill()
	<-f.exited
	_ = f.server.Close()
}

// lines is a log that may be written and read at once.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// PID is the process's.
func (f *Function) PID() int { return f.cmd.Process.Pid }
