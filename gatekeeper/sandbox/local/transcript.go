//go:build linux

package local

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

const (
	finalBytes = 4 << 10 // of standard output, for End.Final
	earlyBytes = 4 << 10 // of standard error, for what bubblewrap says before init speaks
)

// transcript keeps what the agent prints: standard output and error in the
// order they arrive, up to a cap (SB-41). It goes on reading beyond the cap, so
// that a loud agent is neither blocked nor stored.
type transcript struct {
	mu      sync.Mutex
	path    string
	file    *os.File
	left    int64
	dropped int64
	final   []byte // the last of standard output
	early   []byte // the first of standard error
	copyTo  io.Writer
	tripped chan struct{} // closed when copyTo refuses
	err     error         // of the file
}

func newTranscript(dir, session string, limit int64, copyTo io.Writer) (*transcript, error) {
	path := filepath.Join(dir, session+".log")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("transcript: %w", err)
	}
	return &transcript{path: path, file: f, left: limit, copyTo: copyTo, tripped: make(chan struct{})}, nil
}

// stream returns the writer for one of the two streams.
func (t *transcript) stream(stderr bool) io.Writer { return &stream{t, stderr} }

type stream struct {
	t      *transcript
	stderr bool
}

// Write never fails: the agent's pipe must not fill because a disk did.
func (s *stream) Write(b []byte) (int, error) {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.stderr {
		t.early = append(t.early, b[:min(len(b), earlyBytes-len(t.early))]...)
	} else {
		t.final = append(t.final, b...)
		if over := len(t.final) - finalBytes; over > 0 {
			t.final = append(t.final[:0], t.final[over:]...)
		}
	}
	keep := b[:min(int64(len(b)), t.left)]
	if t.err == nil && len(keep) > 0 {
		_, t.err = t.file.Write(keep)
	}
	t.left -= int64(len(keep))
	t.dropped += int64(len(b) - len(keep))
	if t.copyTo != nil {
		if _, err := t.copyTo.Write(b); err != nil {
			t.copyTo = nil
			close(t.tripped)
		}
	}
	return len(b), nil
}

// said returns the first of standard error.
func (t *transcript) said() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.early)
}

// close marks what was dropped and closes the file.
func (t *transcript) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil
	}
	if t.dropped > 0 && t.err == nil {
		_, t.err = fmt.Fprintf(t.file, "\n[gatehouse: %d more bytes of output were dropped]\n", t.dropped)
	}
	if err := t.file.Close(); err != nil && t.err == nil {
		t.err = err
	}
	t.file = nil
	return t.err
}
