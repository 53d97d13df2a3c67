// Package secret reads the secrets that the policy refers to: from the
// environment, SSM Parameter Store or AWS Secrets Manager.
//
// Guarantees: errors name where a secret is kept, never what it is. Parameters are asked
// for ten in a request, because the quota of Parameter Store (40 requests a second) is
// the account's, and each start of a container draws on it. What is throttled is asked
// for again, at random times, as long as the context allows. Nothing is remembered but
// what Fetch gives: a secret that could not be read can be read a moment later.
package secret

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tokenfuse/tokenfuse/internal/awsjson"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// Env reads a secret from the environment variable that it may be kept in. It
// fails for a variable that is not set or empty, and for a secret that has none.
func Env(_ context.Context, s policy.Secret) (string, error) {
	if s.Env == "" {
		return "", fmt.Errorf("the secret %s%s is not kept in the environment", s.SSM, s.Secret)
	}
	if v := os.Getenv(s.Env); v != "" {
		return v, nil
	}
	return "", fmt.Errorf("the environment variable %s is not set", s.Env)
}

// Reader reads secrets wherever they are kept. It is safe for concurrent use.
type Reader struct{ aws awsjson.Client }

// NewReader makes a Reader that asks AWS with cfg, if it must.
func NewReader(cfg aws.Config) *Reader { return &Reader{awsjson.New(cfg)} }

// readTimeout bounds the reading of secrets, with all repetitions, where the context
// does not bound it more tightly.
const readTimeout = 9 * time.Second

// Fetch reads secrets beside each other, and gives a function that tells what was read.
// What has failed fails there, and is not asked for again.
func (r *Reader) Fetch(ctx context.Context, secrets []policy.Secret) func(context.Context, policy.Secret) (string, error) {
	fetched := r.read(ctx, secrets)
	return func(ctx context.Context, s policy.Secret) (string, error) {
		if v, ok := fetched[s]; ok {
			return v.text, v.err
		}
		return r.Read(ctx, s)
	}
}

// Read reads a secret now: from the environment if it may be kept there and is, else
// from where else it is kept. It fails if it is nowhere, or empty.
func (r *Reader) Read(ctx context.Context, s policy.Secret) (string, error) {
	v := r.read(ctx, []policy.Secret{s})[s]
	return v.text, v.err
}

// value is what became of the reading of a secret.
type value struct {
	text string
	err  error
}

func (r *Reader) read(ctx context.Context, secrets []policy.Secret) map[policy.Secret]value {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	values := map[policy.Secret]value{}
	parameters, managed := map[string]value{}, map[string]value{}
	for _, s := range secrets {
		text, err := Env(ctx, s)
		switch {
		case err == nil || s.SSM+s.Secret == "":
			values[s] = value{text, err}
		case s.SSM != "":
			parameters[s.SSM] = value{}
		default:
			managed[s.Secret] = value{}
		}
	}

	var all sync.WaitGroup
	var mu sync.Mutex // of parameters and managed
	for names := range slices.Chunk(slices.Sorted(maps.Keys(parameters)), maxNames) {
		all.Go(func() {
			got := r.parameters(ctx, names)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(parameters, got)
		})
	}
	for _, id := range slices.Sorted(maps.Keys(managed)) {
		all.Go(func() {
			got := r.managed(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			managed[id] = got
		})
	}
	all.Wait()

	for _, s := range secrets {
		if _, there := values[s]; there {
			continue
		}
		if s.SSM != "" {
			values[s] = parameters[s.SSM].checked("the SSM parameter " + s.SSM)
		} else {
			values[s] = managed[s.Secret].checked("the secret " + s.Secret + " of Secrets Manager")
		}
	}
	return values
}

// checked says where a secret is kept that could not be read, or is empty.
func (v value) checked(where string) value {
	switch {
	case v.err != nil:
		return value{err: fmt.Errorf("%s cannot be read: %w", where, v.err)}
	case v.text == "":
		return value{err: fmt.Errorf("%s is empty", where)}
	}
	return v
}

func (r *Reader) managed(ctx context.Context, id string) value {
	var out struct{ SecretString string }
	_, err := r.aws.Ask(ctx, awsjson.Service{Host: "secretsmanager", ID: "Secrets Manager", Version: "1.1"}, "secretsmanager.GetSecretValue", map[string]any{"SecretId": id}, &out)
	return value{out.SecretString, err}
}
