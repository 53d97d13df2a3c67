// Package buffer has a buffer for logs that tests read while they are written.
package buffer

import (
	"bytes"
	"sync"
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
