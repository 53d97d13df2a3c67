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
		file, err := database(opts.DataDir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--db-path", file)
	}
	e := &Engine{
		URL:  "http://127.0.0.1:" + strconv.Itoa(port),
		cmd:  exec.Command(binary, args...),
		done: make(chan struct{}),
	}
	apart(e.cmd)
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

// database names the database's file in dir. It makes both, for nobody but their owner:
// the engine itself would let others read.
func database(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "tokenfuse.db")
	made, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	return file, errors.Join(os.Chmod(file, 0o600), made.Close())
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
		patience := 3 * time.Second
		if e.cmd.Process.Signal(syscall.SIGTERM) != nil { // Windows knows no such signal
			patience = 0
		}
		select {
		case <-e.done:
		case <-time.After(patience):
			_ = e.cmd.Process.Kill() // the engine keeps what it has acknowledged
			<-e.done
		}
	})
	return nil
}

// find looks where `npm ci` puts the engine, up from the working folder and from that of
// this program, then on the PATH.
func find() (string, error) {
	var from []string
	if dir, err := os.Getwd(); err == nil {
		from = append(from, dir)
	}
	if program, err := os.Executable(); err == nil {
		from = append(from, filepath.Dir(program))
	}
	if path := installed(packaged(runtime.GOOS, runtime.GOARCH), from...); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath("dynoxide"); err == nil {
		return path, nil
	}
	return "", errors.New("no DynamoDB-compatible engine found: run `npm ci` in the project's folder, " +
		"or put a `dynoxide` on the PATH (cargo install dynoxide-rs), or name a running one with --dynamodb URL")
}

// installed is the first of the names that is installed in one of the folders or above it.
func installed(names []string, folders ...string) string {
	for _, dir := range folders {
		for above := ""; dir != above; above, dir = dir, filepath.Dir(dir) {
			for _, name := range names {
				candidate := filepath.Join(dir, "node_modules", "@dynoxide", filepath.FromSlash(name))
				if info, err := os.Stat(candidate); err == nil && !info.IsDir() {
					return candidate
				}
			}
		}
	}
	return ""
}

// packaged names the engine's binary in npm's packages, the best first. npm has its own
// names of systems and processors.
func packaged(goos, goarch string) []string {
	system, binary := goos, "dynoxide"
	if goos == "windows" {
		system, binary = "win32", "dynoxide.exe"
	}
	cpus := []string{goarch}
	switch {
	case goarch == "amd64":
		cpus = []string{"x64"}
	case goarch == "arm64" && goos != "linux":
		cpus = []string{"arm64", "x64"} // which macOS and Windows run, too; Node itself may be of that kind
	}
	var names []string
	for _, cpu := range cpus {
		names = append(names, system+"-"+cpu+"/"+binary)
	}
	return names
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
