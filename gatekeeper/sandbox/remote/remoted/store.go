//go:build linux

package remoted

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Store keeps artifacts until their sessions are over: by digest, with a count
// of those that have it.
type Store struct {
	dir  string
	mu   sync.Mutex
	held map[string]int
}

// NewStore opens an empty store in dir; what an earlier run left is removed.
func NewStore(dir string) (*Store, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	return &Store{dir: dir, held: map[string]int{}}, nil
}

// Put keeps one artifact: local.Options.Put.
func (s *Store) Put(r io.Reader) (string, int64, error) {
	f, err := os.CreateTemp(s.dir, "new-")
	if err != nil {
		return "", 0, fmt.Errorf("artifacts: %w", err)
	}
	defer os.Remove(f.Name())
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), r)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", 0, fmt.Errorf("artifacts: %w", err)
	}
	sum := hex.EncodeToString(h.Sum(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[sum] == 0 {
		if err := os.Rename(f.Name(), filepath.Join(s.dir, sum)); err != nil {
			return "", 0, fmt.Errorf("artifacts: %w", err)
		}
	}
	s.held[sum]++
	return sum, n, nil
}

// open returns an artifact that a session holds.
func (s *Store) open(sum string) (*os.File, error) { return os.Open(filepath.Join(s.dir, sum)) }

// release gives back what one session held.
func (s *Store) release(artifacts map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sum := range artifacts {
		if s.held[sum]--; s.held[sum] <= 0 {
			delete(s.held, sum)
			_ = os.Remove(filepath.Join(s.dir, sum))
		}
	}
}
