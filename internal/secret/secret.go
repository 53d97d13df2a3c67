// Package secret reads the secrets that the policy refers to: from the
// environment, SSM Parameter Store or AWS Secrets Manager.
//
// Errors name where a secret is kept, never what it is. A Reader fetches each
// secret once: a function learns of a changed one when it starts anew.
package secret

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

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
type Reader struct {
	aws    aws.Config
	mu     sync.Mutex
	values map[policy.Secret]*value
}

type value struct {
	once sync.Once
	text string
	err  error
}

// NewReader makes a Reader that asks AWS with cfg, if it must.
func NewReader(cfg aws.Config) *Reader {
	return &Reader{aws: cfg, values: map[policy.Secret]*value{}}
}

// fetchTimeout leaves a Lambda function's start, which ends after 10 s, time to say
// what it lacks.
const fetchTimeout = 8 * time.Second

// Fetch reads secrets beside each other, so that a start waits for the slowest of
// them and not for all. What fails, fails when it is read.
func (r *Reader) Fetch(ctx context.Context, secrets []policy.Secret) {
	var all sync.WaitGroup
	for _, s := range secrets {
		all.Go(func() { _, _ = r.Read(ctx, s) })
	}
	all.Wait()
}

// Read reads a secret: from the environment if it may be kept there and is, else
// from where else it is kept. It fails if it is nowhere, or empty.
func (r *Reader) Read(ctx context.Context, s policy.Secret) (string, error) {
	if v, err := Env(ctx, s); err == nil || s.SSM+s.Secret == "" {
		return v, err
	}
	r.mu.Lock()
	v := r.values[s]
	if v == nil {
		v = &value{}
		r.values[s] = v
	}
	r.mu.Unlock()
	v.once.Do(func() { v.text, v.err = r.fetch(ctx, s) })
	return v.text, v.err
}

func (r *Reader) fetch(ctx context.Context, s policy.Secret) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	where := "the SSM parameter " + s.SSM
	if s.SSM != "" {
		text, err = r.parameter(ctx, s.SSM)
	} else {
		where = "the secret " + s.Secret + " of Secrets Manager"
		text, err = r.managed(ctx, s.Secret)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("%s cannot be read: %w", where, err)
	case text == "":
		return "", fmt.Errorf("%s is empty", where)
	}
	return text, nil
}

func (r *Reader) parameter(ctx context.Context, name string) (string, error) {
	var out struct{ Parameter *struct{ Value string } }
	err := r.ask(ctx, "ssm", "SSM", "AmazonSSM.GetParameter", map[string]any{"Name": name, "WithDecryption": true}, &out)
	if err == nil && out.Parameter == nil {
		err = errors.New("the answer has no parameter")
	}
	if err != nil {
		return "", err
	}
	return out.Parameter.Value, nil
}

func (r *Reader) managed(ctx context.Context, id string) (string, error) {
	var out struct{ SecretString string }
	err := r.ask(ctx, "secretsmanager", "Secrets Manager", "secretsmanager.GetSecretValue", map[string]any{"SecretId": id}, &out)
	return out.SecretString, err
}
