package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

const hidden = "sk-a-secret-of-some-length"

// kept answers as SSM and Secrets Manager do, and counts what is asked.
type kept struct {
	mu    sync.Mutex
	asked map[string]int
	// gate, if not nil, holds each answer until all expected requests have come.
	gate *sync.WaitGroup
}

func (k *kept) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name           string
		WithDecryption bool
		SecretId       string
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	k.mu.Lock()
	k.asked[in.Name+in.SecretId]++
	k.mu.Unlock()
	if k.gate != nil {
		k.gate.Done()
		k.gate.Wait()
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	switch target := r.Header.Get("X-Amz-Target"); {
	case target == "AmazonSSM.GetParameter" && in.WithDecryption && in.Name == "/app/key":
		fmt.Fprintf(w, `{"Parameter":{"Name":"/app/key","Type":"SecureString","Value":%q}}`, hidden)
	case target == "AmazonSSM.GetParameter" && in.Name == "/app/empty":
		fmt.Fprint(w, `{"Parameter":{"Name":"/app/empty","Type":"SecureString","Value":""}}`)
	case target == "AmazonSSM.GetParameter" && in.Name == "/app/nothing":
		fmt.Fprint(w, `{}`)
	case target == "AmazonSSM.GetParameter":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"__type":"ParameterNotFound"}`)
	case target == "secretsmanager.GetSecretValue" && in.SecretId == "app/key":
		fmt.Fprintf(w, `{"Name":"app/key","SecretString":%q}`, hidden)
	case target == "secretsmanager.GetSecretValue" && in.SecretId == "app/binary":
		fmt.Fprint(w, `{"Name":"app/binary","SecretBinary":"AAAA"}`)
	default:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"__type":"AccessDeniedException","Message":"no"}`)
	}
}

func (k *kept) reader(t *testing.T) *Reader {
	t.Helper()
	k.asked = map[string]int{}
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

// TestFetch: secrets are fetched beside each other, each once.
func TestFetch(t *testing.T) {
	t.Parallel()
	k := &kept{gate: &sync.WaitGroup{}}
	secrets := []policy.Secret{{SSM: "/app/key"}, {Secret: "app/key"}}
	k.gate.Add(len(secrets)) // none is answered before all are asked for
	r := k.reader(t)
	r.Fetch(t.Context(), secrets)
	for range 3 {
		for _, s := range secrets {
			if v, err := r.Read(context.Background(), s); v != hidden || err != nil {
				t.Errorf("%+v: %q, %v", s, v, err)
			}
		}
	}
	if k.asked["/app/key"] != 1 || k.asked["app/key"] != 1 {
		t.Errorf("asked: %v", k.asked)
	}
}
