// Package buffer has a buffer for logs that tests read while they are written, and reads
// them.
package buffer

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Synced is a buffer that is safe for concurrent use. The zero value is empty.
type Synced struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *Synced) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *Synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Lines reads a log, of which each line must be a JSON object: CloudWatch can search no
// other.
func Lines(t testing.TB, log string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(log) {
		var l map[string]any
		err := json.Unmarshal([]byte(line), &l)
		check.That(t, err == nil, "%v in the log line %q", err, line)
		all = append(all, l)
	}
	return all
}
