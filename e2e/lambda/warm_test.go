package lambda

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// seen is a request as a server behind TLS sees it.
type seen struct {
	what, from string // the operation or path; the connection
	resumed    bool   // the connection's session is one of before
	secret     string // the headers that may hold one
}

// secured is a server behind TLS that remembers who asked for what.
type secured struct {
	*httptest.Server
	mu   sync.Mutex
	seen []seen
}

func secure(t *testing.T, next http.Handler) *secured {
	s := &secured{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + r.URL.Path
		if target := r.Header.Get("X-Amz-Target"); target != "" {
			_, what, _ = strings.Cut(target, ".")
		}
		s.mu.Lock()
		s.seen = append(s.seen, seen{what, r.RemoteAddr, r.TLS.DidResume, r.Header.Get("Authorization")})
		s.mu.Unlock()
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *secured) take() (all []seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, s.seen = s.seen, nil
	return all
}

// While a container starts it opens what its first call will need, and says nothing of the
// owner's meanwhile; the first call finds it open. Who comes back to a closed connection
// resumes its session.
func TestWarmAtBirth(t *testing.T) {
	t.Parallel()
	var store, model *secured
	g := newRig(t)
	to, err := url.Parse(g.stage.URL)
	check.OK(t, err)
	store, model = secure(t, g.store()), secure(t, httputil.NewSingleHostReverseProxy(to))
	roots := filepath.Join(t.TempDir(), "roots.pem")
	check.OK(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: store.Certificate().Raw}), 0o600))
	g.configure(strings.NewReplacer(`base_url: "STAGE/v1"`, `base_url: "`+model.URL+`/v1"`, "STAGE/dev", model.URL+"/dev", "STAGE", g.stage.URL).Replace(testPolicy))
	f := g.warm("generate", "SSL_CERT_FILE="+roots, "AWS_ENDPOINT_URL_DYNAMODB="+store.URL)

	born := store.take()
	check.Must(t, len(born) == 1 && born[0].what == "GetItem", "the store was asked %+v", born)
	greeted := map[string]seen{}
	for _, s := range model.take() {
		greeted[s.what] = s
		check.Equal(t, s.secret, "", "the key at a greeting")
	}
	check.Must(t, len(greeted) == 2 && greeted["HEAD /"].from != "" && greeted["GET /dev/jwks.json"].from != "", "the model and the issuer were asked %+v", greeted)

	call := func() (stored, asked []seen) {
		t.Helper()
		a := whole(t, g.ask(f, g.token("ann"), chat("ask", question, false), timeout))
		check.Equal(t, a.status, http.StatusOK, "status")
		return store.take(), model.take()
	}
	stored, asked := call()
	check.That(t, stored[0].what != "GetItem", "the first call reads the fuse again: %+v", stored[0])
	for _, s := range stored { // one more connection may be opened before the first is free again
		check.That(t, s.from == born[0].from || s.resumed, "the first call met the store by a new session: %+v; at birth it was %+v", s, born[0])
	}
	check.That(t, len(asked) == 1 && asked[0].from == greeted["HEAD /"].from, "the first call met the model as %+v; at birth it was %+v", asked, greeted)

	store.CloseClientConnections()
	model.CloseClientConnections()
	stored, asked = call()
	for _, s := range append(stored, asked...) {
		check.That(t, s.resumed && s.from != born[0].from && s.from != greeted["HEAD /"].from, "after a pause: %+v", s)
	}
}

// A start does not wait long for a network that is silent.
func TestColdNetworkHoldsNoStartUp(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-hang
	}))
	t.Cleanup(server.Close)
	silent := server.URL
	g := newRig(t, func(g *rig) {
		g.edit = func(yaml string) string {
			return strings.Replace(yaml, `base_url: "`, `base_url: "`+silent+`/`, 1)
		}
	})
	defer close(hang)
	f := g.warm("generate", "AWS_ENDPOINT_URL_DYNAMODB="+silent)
	f.Close() // then all of its log is here
	var waited float64
	for _, line := range logged(t, f) {
		if line["msg"] == "the function starts" {
			waited, _ = line["waited_ms"].(float64)
		}
	}
	check.That(t, waited >= 900 && waited < 5000, "the start waited for %g ms, about 1000 are right", waited)
}
