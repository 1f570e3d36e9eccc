//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// openIn opens what a root file system has at a path. Links of an image are
// words of whoever made it: they are followed within it, as they are inside, and
// never on the host, where this program may read what no agent may (SB-05).
func openIn(rootfs, path string, flags int) (*os.File, error) {
	if rootfs == "host" {
		return os.OpenFile(filepath.Join("/", path), flags, 0)
	}
	root, err := unix.Open(rootfs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: rootfs, Err: err}
	}
	defer unix.Close(root)
	how := &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_PATH != 0 {
		how.Flags &^= unix.O_NONBLOCK // beside O_PATH there is no such flag
	}
	fd, err := unix.Openat2(root, path, how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(rootfs, path), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(rootfs, path)), nil
}

// folderIn returns where on the host a folder of a root file system is, its
// links followed within it; "" when there is none.
func folderIn(rootfs, path string) (string, error) {
	f, err := openIn(rootfs, path, unix.O_PATH|unix.O_DIRECTORY)
	if absent(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("rootfs: %w", err)
	}
	defer f.Close()
	if rootfs == "host" {
		return filepath.Join("/", path), nil
	}
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return "", fmt.Errorf("rootfs: %w", err)
	}
	return at, nil
}
