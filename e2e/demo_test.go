//go:build clients

package e2e

import "testing"

// demo.mjs says what the page at / is for.
func TestClientsDemo(t *testing.T) {
	t.Parallel()
	browse(t, "demo.mjs", startDev(t, "tokenfuse.yaml").url+"/")
}
