package remote

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"gatehouse/gatekeeper/sandbox"
)

// transcript keeps what the agent prints, up to a cap (SB-41). What is beyond
// is counted.
type transcript struct {
	mu      sync.Mutex
	path    string
	file    *os.File // nil once closed
	left    int64
	dropped int64
	copyTo  io.Writer
	err     error
}

func newTranscript(dir, session string, limit int64, copyTo io.Writer) (*transcript, error) {
	path := filepath.Join(dir, session+".log")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("transcript: %w", err)
	}
	return &transcript{path: path, file: f, left: limit, copyTo: copyTo}, nil
}

// take keeps one piece of output. It reports false when the copy's reader
// refused it: a tripwire.
func (t *transcript) take(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	keep := b[:min(int64(len(b)), t.left)]
	if t.err == nil && t.file != nil && len(keep) > 0 {
		_, t.err = t.file.Write(keep)
	}
	t.left -= int64(len(keep))
	t.dropped += int64(len(b) - len(keep))
	if t.copyTo == nil {
		return true
	}
	_, err := t.copyTo.Write(b)
	return err == nil
}

func (t *transcript) finish(end *sandbox.End) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end.Transcript, end.Dropped = t.path, t.dropped
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
