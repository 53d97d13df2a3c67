package provider

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
)

// Connect opens the connection of p's first call, which then finds it open. It says
// nothing of the owner's: what is sent is a HEAD for the root of p's host, with neither key
// nor header. Whatever comes of it is ignored, and ctx bounds it: the first call connects
// by itself if it has to.
func Connect(ctx context.Context, p Provider) {
	if c, ok := p.(interface{ connect(context.Context) }); ok {
		c.connect(ctx)
	}
}

func (b *breaker) connect(ctx context.Context) { Connect(ctx, b.provider) }

func (a *api) connect(ctx context.Context) { open(ctx, &a.client, a.endpoint) }

func (b *Bedrock) connect(ctx context.Context) { open(ctx, &b.client, b.address(ctx)) }

// address is where Bedrock is called; "": it cannot be told.
func (b *Bedrock) address(ctx context.Context) string {
	o := b.runtime.Options()
	at, err := o.EndpointResolverV2.ResolveEndpoint(ctx, bedrockruntime.EndpointParameters{Region: &o.Region, Endpoint: o.BaseEndpoint, UseFIPS: aws.Bool(false), UseDualStack: aws.Bool(false)})
	if err != nil {
		return ""
	}
	return at.URI.String()
}

// Server is the host that p calls, for the log; "" if it is not known.
func Server(p Provider) string {
	if c, ok := p.(interface{ server() string }); ok {
		return c.server()
	}
	return ""
}

func (b *breaker) server() string { return Server(b.provider) }

func (a *api) server() string { return hostOf(a.endpoint) }

func (b *Bedrock) server() string { return hostOf(b.address(context.Background())) }

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func open(ctx context.Context, client *http.Client, address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	root := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, root.String(), http.NoBody)
	if err != nil {
		return
	}
	req.Header.Set("User-Agent", "tokenfuse")
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxLeftover)) // read to its end, or it is not used again
	_ = resp.Body.Close()
}
