package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// ListenDoor opens a session's door at path: a unix stream socket, mode 0600,
// removed on Close. The folder must exist and be closed to the agents' users;
// the provider hands the socket, not the folder, to its one sandbox. Paths may
// be longer than the 107 bytes that bind(2) takes.
func ListenDoor(path string) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("door's folder: %w", err)
	}
	defer dir.Close()
	// The kernel resolves the short name to the same socket.
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("door's socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // the short name is gone by then
	d := &doorListener{UnixListener: l, path: path}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("door's socket: %w", err)
	}
	return d, nil
}

type doorListener struct {
	*net.UnixListener
	path string
}

func (d *doorListener) Addr() net.Addr { return &net.UnixAddr{Name: d.path, Net: "unix"} }

func (d *doorListener) Close() error {
	err := d.UnixListener.Close()
	if rm := os.Remove(d.path); rm != nil && !errors.Is(rm, os.ErrNotExist) && err == nil {
		err = rm
	}
	return err
}

// DoorSocket returns the path of a door's socket, or "" for no door.
func DoorSocket(door net.Listener) (string, error) {
	if door == nil {
		return "", nil
	}
	a, ok := door.Addr().(*net.UnixAddr)
	if !ok || a.Net != "unix" || !filepath.IsAbs(a.Name) {
		return "", errors.New("a door listens on a unix stream socket with an absolute path")
	}
	fi, err := os.Lstat(a.Name)
	if err != nil {
		return "", fmt.Errorf("door's socket: %w", err)
	}
	if fi.Mode().Type() != os.ModeSocket {
		return "", errors.New("door's path is not a socket")
	}
	return a.Name, nil
}
