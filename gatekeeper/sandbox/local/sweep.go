//go:build linux

package local

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// removeAll removes a session's folder, whatever the agent left in it: folders
// without permissions, and trees so deep that walking down holds more
// descriptors than a process may have. Every process that could change it is
// dead.
//
// Folders are not walked down but moved up: each becomes a child of dir, is
// emptied in its turn, and at most two descriptors are open at a time.
func removeAll(dir string) error {
	top, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(top)
	r := remover{top: top, prefix: ".removing-" + rand.Text() + "-"} // a removal that was cut short left other names
	if err := r.empty(top); err != nil {
		return &os.PathError{Op: "empty", Path: dir, Err: err}
	}
	for len(r.folders) > 0 {
		name := r.folders[len(r.folders)-1]
		r.folders = r.folders[:len(r.folders)-1]
		if err := r.remove(name); err != nil {
			return &os.PathError{Op: "remove", Path: dir, Err: err}
		}
	}
	return os.Remove(dir)
}

// remover empties one folder.
type remover struct {
	top     int
	prefix  string   // of the names of folders moved up
	moved   int      // how many
	folders []string // children of top that are still to be removed
}

// remove removes a child of top.
func (r *remover) remove(name string) error {
	fd, err := unix.Openat(r.top, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = r.empty(fd)
	unix.Close(fd)
	if err != nil {
		return err
	}
	return unix.Unlinkat(r.top, name, unix.AT_REMOVEDIR)
}

// empty removes the files of the folder fd and moves its folders up.
func (r *remover) empty(fd int) error {
	buf := make([]byte, 32<<10)
	for {
		if _, err := unix.Seek(fd, 0, 0); err != nil {
			return err
		}
		left := 0
		for {
			n, err := unix.ReadDirent(fd, buf)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			_, count, names := unix.ParseDirent(buf[:n], -1, nil)
			left += count
			for _, name := range names {
				if fd == r.top && slices.Contains(r.folders, name) {
					left--
					continue
				}
				if err := r.drop(fd, name); err != nil {
					return err
				}
			}
		}
		if left == 0 {
			return nil
		}
	}
}

// drop removes a file or an empty folder, or moves a folder up.
func (r *remover) drop(fd int, name string) error {
	err := unix.Unlinkat(fd, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	// Moving a folder, and opening it then, asks for its own permissions. The
	// name is no link: unlink said that it is a folder.
	if err := unix.Fchmodat(fd, name, 0o700, 0); err != nil {
		return err
	}
	if fd == r.top {
		r.folders = append(r.folders, name)
		return nil
	}
	to := r.prefix + strconv.Itoa(r.moved)
	r.moved++
	if err := unix.Renameat(fd, name, r.top, to); err != nil {
		return err
	}
	r.folders = append(r.folders, to)
	return nil
}
