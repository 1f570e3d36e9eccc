package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gatehouse/internal/problem"
)

// ListenSocket listens on a unix socket with mode 0600. The socket is made in
// a folder of its own that only this user can enter, closed to others there and
// moved to path, so that at no time anybody else can connect. A socket left by
// a node that died is replaced; that of a living node is not.
func ListenSocket(path string) (net.Listener, error) {
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, problem.New(problem.Conflict, fmt.Sprintf("another node listens on %s", path), "Stop it, or give this one its own state folder.")
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".socket-")
	if err != nil {
		return nil, fmt.Errorf("couldn't make the socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tmp := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("couldn't make the socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(tmp, 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't make the socket: %w", err), l.Close())
	}
	return &socket{Listener: l, path: path}, nil
}

// socket removes its file when it closes.
type socket struct {
	net.Listener
	path string
	once sync.Once
}

// Close stops listening and removes the file.
func (s *socket) Close() error {
	err := s.Listener.Close()
	s.once.Do(func() { err = errors.Join(err, os.Remove(s.path)) })
	return err
}
