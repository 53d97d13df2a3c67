package check

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// told is a T that remembers what it was told.
type told []string

func (t *told) Helper()                   {}
func (t *told) Errorf(f string, a ...any) { *t = append(*t, "error: "+fmt.Sprintf(f, a...)) }
func (t *told) Fatal(a ...any)            { *t = append(*t, "fatal: "+fmt.Sprint(a...)); runtime.Goexit() }
func (t *told) Fatalf(f string, a ...any) { t.Fatal(fmt.Sprintf(f, a...)) }

func TestWhatFailsIsTold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		check func(T)
		want  []string
	}{
		{func(t T) { OK(t, nil); t.Errorf("went on") }, []string{"error: went on"}},
		{func(t T) { OK(t, errors.New("gone")); t.Errorf("went on") }, []string{"fatal: gone"}},
		{func(t T) { Equal(t, 3, 3, "n") }, nil},
		{func(t T) { Equal(t, "3", "4", "part %d", 7) }, []string{`error: part 7: got "3", want "4"`}},
		{func(t T) { Equal(t, time.Minute, 0, "wait") }, []string{"error: wait: got 1m0s, want 0s"}},
		{func(t T) { Diff(t, "", "n") }, nil},
		{func(t T) { Diff(t, "-1\n+2", "n") }, []string{"error: n (-want +got):\n-1\n+2"}},
		{func(t T) { That(t, true, "n") }, nil},
		{func(t T) { That(t, false, "%d%%", 5); t.Errorf("went on") }, []string{"error: 5%", "error: went on"}},
		{func(t T) { Must(t, true, "n") }, nil},
		{func(t T) { Must(t, false, "%d%%", 5); t.Errorf("went on") }, []string{"fatal: 5%"}},
	} {
		var got told
		done := make(chan struct{})
		go func() { defer close(done); tc.check(&got) }()
		<-done
		if !slices.Equal(got, tc.want) {
			t.Errorf("told %q, want %q", got, tc.want)
		}
	}
}
