package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// environmentEndpoint is the address that the environment has. TOKENFUSE_URL is an older
// name, which counts where TOKENFUSE_ENDPOINT is not set.
func environmentEndpoint() string {
	return cmp.Or(os.Getenv("TOKENFUSE_ENDPOINT"), os.Getenv("TOKENFUSE_URL"))
}

// rootOf is the address before the routes, without a slash at its end, of any address of
// a deployment: people copy the one that clients call, which ends in /v1. from says where
// it stands.
func rootOf(from, address string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s must be an address such as https://ID.execute-api.REGION.amazonaws.com/STAGE", from)
	}
	segments := slices.DeleteFunc(strings.Split(u.Path, "/"), func(s string) bool { return s == "" })
	first := 0
	if regional.MatchString(u.Host) {
		first = 1 // the stage, whatever its name
	}
	for i := first; i < len(segments); i++ {
		if segments[i] == "v1" || segments[i] == "admin" {
			segments = segments[:i]
		}
	}
	root := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}
	return strings.TrimRight(root.JoinPath(segments...).String(), "/"), nil
}
