// Package engine runs a DynamoDB-compatible engine as a child process, for a
// laptop and for tests.
//
// It starts dynoxide on a free loopback port and is ready when Start returns.
// The child ends with Close, and on Linux also when this process dies.
package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say how the engine runs. The zero value keeps everything in memory.
type Options struct {
	// DataDir is the folder of the database file; "" keeps the data in memory.
	DataDir string
}

// Engine is a running child.
type Engine struct {
	URL   string // http://127.0.0.1:port
	cmd   *exec.Cmd
	done  chan struct{} // closed when the child has ended
	close sync.Once
}

// startTimeout bounds the wait for a child that neither serves nor ends.
const startTimeout = 10 * time.Second

// Start starts the engine and waits until it serves.
func Start(ctx context.Context, opts Options) (*Engine, error) {
	binary, err := find()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		e, err := start(ctx, binary, opts)
		// Between our choosing a free port and the child's binding it, another
		// process may have taken it.
		if errors.Is(err, errPortTaken) && ctx.Err() == nil {
			continue
		}
		return e, err
	}
}

var errPortTaken = errors.New("port taken")

func start(ctx context.Context, binary string, opts Options) (*Engine, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--host", "127.0.0.1", "--port", strconv.Itoa(port)}
	if opts.DataDir != "" {
		if err := os.MkdirAll(opts.DataDir, 0o700); err != nil {
			return nil, err
		}
		args = append(args, "--db-path", filepath.Join(opts.DataDir, "tokenfuse.db"))
	}
	e := &Engine{
		URL:  "http://127.0.0.1:" + strconv.Itoa(port),
		cmd:  exec.Command(binary, args...),
		done: make(chan struct{}),
	}
	endWithParent(e.cmd)
	stderr, err := e.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}

	ready := make(chan error, 1)
	go func() {
		ready <- awaitReady(stderr)
		_, _ = io.Copy(io.Discard, stderr) // a full pipe would stall the child
		_ = e.cmd.Wait()
		close(e.done)
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = fmt.Errorf("%s did not start to serve: %w", binary, ctx.Err())
	}
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

func awaitReady(stderr io.Reader) error {
	lines := bufio.NewScanner(stderr)
	var said []string
	for lines.Scan() {
		line := lines.Text()
		if strings.Contains(line, "listening on") {
			return nil
		}
		if strings.Contains(line, "already in use") {
			return errPortTaken
		}
		said = append(said, line)
	}
	return fmt.Errorf("the engine ended at its start: %s", strings.Join(said, "; "))
}

// Close ends the child and waits for its end.
func (e *Engine) Close() error {
	e.close.Do(func() {
		_ = e.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-e.done:
		case <-time.After(3 * time.Second):
			_ = e.cmd.Process.Kill()
			<-e.done
		}
	})
	return nil
}

// Done is closed when the child has ended, wanted or not.
func (e *Engine) Done() <-chan struct{} { return e.done }

// find looks where `npm ci` puts the engine, up from the working folder, then
// on the PATH.
func find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		candidate := filepath.Join(dir, "node_modules", "@dynoxide", runtime.GOOS+"-"+npmArch(), "dynoxide")
		if info, err := os.Stat(candidate); err == nil && !info.IsDir() {
			return candidate, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	if path, err := exec.LookPath("dynoxide"); err == nil {
		return path, nil
	}
	return "", errors.New("no DynamoDB-compatible engine found: run `npm ci` in the project's folder (Linux on x64), " +
		"or put a `dynoxide` on the PATH (cargo install dynoxide), or name a running one with --dynamodb URL")
}

func npmArch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
