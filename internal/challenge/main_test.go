package challenge

import (
	"os"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

var (
	secret      = []byte("0123456789abcdef")
	otherSecret = []byte("0123456789abcdeg")
	start       = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// clock is one that a test moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
