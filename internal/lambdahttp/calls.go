package lambdahttp

import (
	"context"
	"io"
	"sync"

	"github.com/aws/aws-lambda-go/events"
)

// Calls knows which invocations of a process are under way, for a process that has many at
// a time and must end: from the event until the last byte of the answer is taken.
type Calls struct {
	mu   sync.Mutex
	open int
	idle chan struct{} // closed when none is open; nil: nobody waits
}

// Watch is a handler as Stream makes it, whose invocations c knows.
func (c *Calls) Watch(h func(context.Context, *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error)) func(context.Context, *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
	return func(ctx context.Context, e *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
		c.mu.Lock()
		c.open++
		c.mu.Unlock()
		answered := false
		defer func() {
			if !answered {
				c.end()
			}
		}()
		resp, err := h(ctx, e)
		if resp != nil {
			// The runtime closes an answer when Lambda has taken it.
			resp.Body, answered = &counted{Reader: resp.Body, end: sync.OnceFunc(c.end)}, true
		}
		return resp, err
	}
}

func (c *Calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.open == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Wait waits until no invocation is under way, or ctx ends, which is its error.
func (c *Calls) Wait(ctx context.Context) error {
	c.mu.Lock()
	if c.open == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// counted is the body of an answer, whose end is told once.
type counted struct {
	io.Reader
	end func()
}

func (b *counted) Close() error {
	defer b.end()
	if c, ok := b.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
