// Package stagetest gives tests a stage.
package stagetest

import (
	"testing"

	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// New sets a stage on the engine of enginetest.Main, with tables that only this test
// uses. It ends with the test.
func New(t testing.TB, opts stage.Options) *stage.Stage {
	t.Helper()
	opts.Store = enginetest.URL()
	_, opts.Limits = enginetest.Table(t)
	_, opts.Spend = enginetest.SpendTable(t)
	s, err := stage.New(t.Context(), opts)
	check.OK(t, err)
	t.Cleanup(s.Close)
	return s
}
