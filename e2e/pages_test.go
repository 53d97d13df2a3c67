//go:build clients

package e2e

import "testing"

// The page opens without a complaint of the browser or of axe, on a phone and a desk, light
// and dark.
func TestClientsPages(t *testing.T) {
	t.Parallel()
	d := startDev(t, "tokenfuse.yaml")
	browse(t, "pages.mjs", d.url+"/")
}
