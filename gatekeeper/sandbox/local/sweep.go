//go:build linux

package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// sweep removes the folders of sessions whose node is gone: the lock of a live
// one is held.
func sweep(run string) error {
	guard, err := lockRun(run, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer guard.Close()
	entries, err := os.ReadDir(run)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(run, e.Name())
		switch {
		case e.IsDir():
			lock, err := lockFolder(path)
			if errors.Is(err, unix.EWOULDBLOCK) {
				continue // alive
			} else if err != nil {
				errs = append(errs, err)
				continue
			}
			errs = append(errs, removeAll(path), lock.Close())
		case strings.HasPrefix(e.Name(), initPrefix): // of a node that may be gone
			f, err := os.Open(path)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				errs = append(errs, os.Remove(path))
			}
			errs = append(errs, f.Close())
		case strings.HasPrefix(e.Name(), placingPrefix):
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// lockRun takes the run folder's own lock: shared to add to it, exclusive to
// sweep it.
func lockRun(run string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(run, ".lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// lockFolder takes a session folder's lock.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir+"/lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeAll removes a session's folder whatever modes the agent left behind.
// Every process that could change it is dead.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_ = openFolders(root, ".", 0)
	return os.RemoveAll(dir)
}

// openFolders makes every folder below dir passable for its owner.
func openFolders(root *os.Root, dir string, depth int) error {
	if err := root.Chmod(dir, 0o700); err != nil {
		return err
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := openFolders(root, dir+"/"+e.Name(), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
