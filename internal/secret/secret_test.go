package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const hidden = "sk-a-secret-of-some-length"

// kept answers as SSM and Secrets Manager do, and counts what is asked.
type kept struct {
	mu       sync.Mutex
	requests [][]string // the names in each
	// gate, if not nil, holds each answer until all expected requests have come.
	gate *sync.WaitGroup
	// busy, if not nil, says which requests are throttled.
	busy func(n int, names []string) bool
	more map[string]string // parameters, beside those that are always there
}

// arn is where parameters of another account are.
const arn = "arn:aws:ssm:eu-west-1:210987654321:parameter"

func (k *kept) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Names          []string
		WithDecryption bool
		SecretId       string
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	target := r.Header.Get("X-Amz-Target")
	if target == "secretsmanager.GetSecretValue" {
		in.Names = []string{in.SecretId}
	}
	k.mu.Lock()
	k.requests = append(k.requests, in.Names)
	busy := k.busy != nil && k.busy(len(k.requests), in.Names)
	k.mu.Unlock()
	if k.gate != nil {
		k.gate.Done()
		k.gate.Wait()
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	refuse := func(kind string) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"__type":%q,"Message":"no"}`, kind)
	}
	switch {
	case busy:
		refuse("com.amazonaws.ssm#ThrottlingException")
	case target == "secretsmanager.GetSecretValue" && in.SecretId == "app/key":
		fmt.Fprintf(w, `{"Name":"app/key","SecretString":%q}`, hidden)
	case target == "secretsmanager.GetSecretValue" && in.SecretId == "app/binary":
		fmt.Fprint(w, `{"Name":"app/binary","SecretBinary":"AAAA"}`)
	case target != "AmazonSSM.GetParameters" || !in.WithDecryption || len(in.Names) > 10 || slices.Contains(in.Names, "/others/key"):
		refuse("AccessDeniedException")
	default:
		k.parameters(w, in.Names)
	}
}

func (k *kept) parameters(w http.ResponseWriter, names []string) {
	type parameter struct{ Name, ARN, Selector, Value string }
	out := struct {
		Parameters        []parameter
		InvalidParameters []string
	}{[]parameter{}, []string{}}
	for _, name := range names {
		p := parameter{Name: name, ARN: arn + name, Value: k.more[name]}
		switch name {
		case "/app/key":
			p.Value = hidden
		case arn + "/shared/key":
			p.Name, p.ARN, p.Value = "/shared/key", name, hidden
		case "/app/key:3":
			p.Name, p.Selector, p.ARN, p.Value = "/app/key", ":3", arn+"/app/key", hidden
		case "/app/empty":
		case "/app/nothing": // the answer forgets it
			continue
		default:
			if p.Value == "" {
				out.InvalidParameters = append(out.InvalidParameters, name)
				continue
			}
		}
		out.Parameters = append(out.Parameters, p)
	}
	slices.Reverse(out.Parameters) // their order is nobody's promise
	_ = json.NewEncoder(w).Encode(out)
}

func (k *kept) reader(t *testing.T) *Reader {
	t.Helper()
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	return NewReader(aws.Config{Region: "eu-west-1", BaseEndpoint: &server.URL,
		Credentials: credentials.NewStaticCredentialsProvider("AKID", "KEY", "")})
}

func TestRead(t *testing.T) {
	t.Setenv("TOKENFUSE_TEST_SET", "from the environment")
	t.Setenv("TOKENFUSE_TEST_EMPTY", "")
	for name, tt := range map[string]struct {
		secret policy.Secret
		want   string
		says   string // what the error says
	}{
		"environment":                  {policy.Secret{Env: "TOKENFUSE_TEST_SET"}, "from the environment", ""},
		"not set":                      {policy.Secret{Env: "TOKENFUSE_TEST_UNSET"}, "", "TOKENFUSE_TEST_UNSET is not set"},
		"empty":                        {policy.Secret{Env: "TOKENFUSE_TEST_EMPTY"}, "", "TOKENFUSE_TEST_EMPTY is not set"},
		"parameter":                    {policy.Secret{SSM: "/app/key"}, hidden, ""},
		"environment before parameter": {policy.Secret{Env: "TOKENFUSE_TEST_SET", SSM: "/app/key"}, "from the environment", ""},
		"parameter if not set":         {policy.Secret{Env: "TOKENFUSE_TEST_UNSET", SSM: "/app/key"}, hidden, ""},
		"secret if empty":              {policy.Secret{Env: "TOKENFUSE_TEST_EMPTY", Secret: "app/key"}, hidden, ""},
		"secret":                       {policy.Secret{Secret: "app/key"}, hidden, ""},
		"parameter by ARN":             {policy.Secret{SSM: arn + "/shared/key"}, hidden, ""},
		"a version of a parameter":     {policy.Secret{SSM: "/app/key:3"}, hidden, ""},
		"parameter without leave":      {policy.Secret{SSM: "/others/key"}, "", "the SSM parameter /others/key cannot be read: AccessDeniedException: no"},
		"no such parameter":            {policy.Secret{SSM: "/app/other"}, "", "the SSM parameter /app/other cannot be read: "},
		"empty parameter":              {policy.Secret{SSM: "/app/empty"}, "", "the SSM parameter /app/empty is empty"},
		"strange answer":               {policy.Secret{SSM: "/app/nothing"}, "", "/app/nothing cannot be read"},
		"secret without leave":         {policy.Secret{Secret: "app/other"}, "", "the secret app/other of Secrets Manager cannot be read: "},
		"secret that is not text":      {policy.Secret{Secret: "app/binary"}, "", "app/binary of Secrets Manager is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			r := (&kept{}).reader(t)
			got, err := r.Read(t.Context(), tt.secret)
			switch {
			case got != tt.want || (err == nil) != (tt.says == ""):
				t.Errorf("got %q, %v", got, err)
			case err != nil && !strings.Contains(err.Error(), tt.says):
				t.Errorf("%v does not say %q", err, tt.says)
			}
		})
	}
}

// Secrets are fetched beside each other, each once.
func TestFetch(t *testing.T) {
	t.Parallel()
	k := &kept{gate: &sync.WaitGroup{}}
	secrets := []policy.Secret{{SSM: "/app/key"}, {Secret: "app/key"}, {SSM: "/app/key"}}
	k.gate.Add(2) // none is answered before all are asked for
	read := k.reader(t).Fetch(t.Context(), secrets)
	for range 3 {
		for _, s := range secrets {
			if v, err := read(context.Background(), s); v != hidden || err != nil {
				t.Errorf("%+v: %q, %v", s, v, err)
			}
		}
	}
	check.That(t, len(k.requests) == 2, "asked: %v", k.requests)
}

// All parameters take one request for each ten of them, since the account has few.
func TestFetchOfMany(t *testing.T) {
	t.Parallel()
	for parameters, requests := range map[int]int{1: 1, 10: 1, 11: 2, 25: 3} {
		k := &kept{more: map[string]string{}}
		var secrets []policy.Secret
		for i := range parameters {
			name := fmt.Sprintf("/app/%02d", i)
			k.more[name] = "value of " + name
			secrets = append(secrets, policy.Secret{SSM: name})
		}
		read := k.reader(t).Fetch(t.Context(), secrets)
		for _, s := range secrets {
			if v, err := read(t.Context(), s); v != "value of "+s.SSM || err != nil {
				t.Errorf("%+v: %q, %v", s, v, err)
			}
		}
		check.That(t, len(k.requests) == requests, "%d parameters in %d requests, want %d: %v", parameters, len(k.requests), requests, k.requests)
	}
}

// What is wrong with one secret is said of that one, and takes nothing from the others.
func TestFetchNamesTheCulprit(t *testing.T) {
	t.Parallel()
	k := &kept{}
	read := k.reader(t).Fetch(t.Context(), []policy.Secret{
		{SSM: "/app/key"}, {SSM: "/app/absent"}, {SSM: "/others/key"}, {SSM: "/app/empty"}, {SSM: "/app/nothing"}})
	if v, err := read(t.Context(), policy.Secret{SSM: "/app/key"}); v != hidden || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	asked := len(k.requests)
	for name, says := range map[string]string{"/app/absent": "ParameterNotFound", "/others/key": "AccessDenied", "/app/empty": "is empty", "/app/nothing": "does not have it"} {
		v, err := read(t.Context(), policy.Secret{SSM: name})
		check.That(t, v == "" && err != nil && strings.Contains(err.Error(), says) && strings.Contains(err.Error(), "parameter "+name+" ") && !strings.Contains(err.Error(), hidden),
			"%s: %q, %v", name, v, err)
	}
	if len(k.requests) != asked {
		t.Errorf("asked again: %v", k.requests[asked:])
	}
}

// What is throttled is asked for again, and only that.
func TestFetchThrottled(t *testing.T) {
	t.Parallel()
	k := &kept{more: map[string]string{}}
	secrets := []policy.Secret{{Secret: "app/key"}}
	for i := range 20 {
		name := fmt.Sprintf("/app/%02d", i)
		k.more[name] = name
		secrets = append(secrets, policy.Secret{SSM: name})
	}
	times := map[string]int{}
	k.busy = func(_ int, names []string) bool {
		times[names[0]]++
		return names[0] != "/app/00" && times[names[0]] <= 2
	}
	read := k.reader(t).Fetch(t.Context(), secrets)
	for _, s := range secrets {
		if _, err := read(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	check.That(t, times["/app/00"] == 1 && times["/app/10"] == 3 && times["app/key"] == 3, "asked %v", times)
}

// A store that is busy for good is left in time to say so, and why.
func TestFetchGivesUpInTime(t *testing.T) {
	t.Parallel()
	k := &kept{busy: func(int, []string) bool { return true }}
	const budget = 1500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	s := policy.Secret{SSM: "/app/key"}
	_, err := k.reader(t).Fetch(ctx, []policy.Secret{s})(t.Context(), s)
	check.That(t, err != nil && strings.Contains(err.Error(), "/app/key cannot be read: ThrottlingException") && ctx.Err() == nil, "%v, %v", err, ctx.Err())
	n := len(k.requests)
	check.That(t, n >= 3 && n <= 60, "%d requests in %s", n, budget)
}

// What could not be read can be a moment later: nothing remembers the failure.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	k := &kept{more: map[string]string{}}
	r, s := k.reader(t), policy.Secret{SSM: "/app/late"}
	if v, err := r.Read(t.Context(), s); err == nil {
		t.Fatalf("%q", v)
	}
	k.mu.Lock()
	k.more["/app/late"] = hidden
	k.mu.Unlock()
	if v, err := r.Read(t.Context(), s); v != hidden || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}
