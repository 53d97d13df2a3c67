package main

import (
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Any address of a deployment will do, as people copy it.
func TestRootOf(t *testing.T) {
	t.Parallel()
	const api = "https://a1b2.execute-api.eu-central-1.amazonaws.com"
	for address, want := range map[string]string{
		"http://127.0.0.1:8787": "http://127.0.0.1:8787", "http://127.0.0.1:8787/": "http://127.0.0.1:8787", " http://127.0.0.1:8787/v1 ": "http://127.0.0.1:8787",
		"https://ai.example.com/v1/": "https://ai.example.com", "https://ai.example.com//v1//chat/completions?x=1#y": "https://ai.example.com",
		"https://ai.example.com/api/v1": "https://ai.example.com/api", "https://ai.example.com/admin/limits": "https://ai.example.com", "https://ai.example.com/v10": "https://ai.example.com/v10",
		api + "/prod": api + "/prod", api + "/prod/v1/": api + "/prod", api + "/v1": api + "/v1", api + "/v1/v1": api + "/v1", api + "/admin/admin/fuse": api + "/admin",
	} {
		got, err := rootOf("--endpoint", address)
		check.OK(t, err)
		check.Equal(t, got, want, "%s", address)
	}
	for _, address := range []string{"", "somewhere", "127.0.0.1:8787", "ftp://127.0.0.1", "http://%", "http://"} {
		got, err := rootOf("--endpoint", address)
		check.That(t, err != nil, "%q: %s", address, got)
	}
}

func TestEnvironmentEndpoint(t *testing.T) {
	for _, test := range []struct{ endpoint, url, want string }{{"", "", ""}, {"a", "", "a"}, {"", "b", "b"}, {"a", "b", "a"}} {
		t.Setenv("TOKENFUSE_ENDPOINT", test.endpoint)
		t.Setenv("TOKENFUSE_URL", test.url)
		check.Equal(t, environmentEndpoint(), test.want, "%+v", test)
	}
}
