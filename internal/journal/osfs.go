package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned by FS.Lock when the lock is held elsewhere.
var ErrLocked = errors.New("lock is held elsewhere")

// OS returns the real file layer.
func OS() FS { return osFS{} }

type osFS struct{}

// osFile syncs in the background where the kernel can.
type osFile struct {
	f     *os.File
	sync  *backgroundSync // nil before the first Sync, and where the kernel cannot
	self  bool            // it cannot
	fills bool            // Fill is of use here
}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag|syscall.O_NOFOLLOW, perm)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f, fills: inPlace(f)}, nil
}

// inPlace reports whether the file system is one that writes again where it wrote
// before. One that copies on write (btrfs, zfs, xfs where a file was cloned) needs
// new space for it, which may not be there; of others that is not known.
func inPlace(f *os.File) bool {
	var st unix.Statfs_t
	err := unix.Fstatfs(int(f.Fd()), &st)
	return err == nil && st.Type == unix.EXT4_SUPER_MAGIC
}

func (osFS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) Remove(name string) error                     { return os.Remove(name) }
func (osFS) Rename(from, to string) error                 { return os.Rename(from, to) }

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("flock %s: %w", name, err)
	}
	return f, nil
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error)  { return f.f.ReadAt(p, off) }
func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.f.WriteAt(p, off) }
func (f *osFile) Truncate(size int64) error                { return f.f.Truncate(size) }

func (f *osFile) Close() error {
	if f.sync != nil {
		f.sync.release()
		f.sync = nil
	}
	return f.f.Close()
}

func (f *osFile) Sync() error {
	if f.sync == nil && !f.self {
		var err error
		f.sync, err = newBackgroundSync()
		f.self = err != nil
	}
	if f.sync != nil {
		err := f.sync.sync(int(f.f.Fd()))
		if err == nil {
			return nil
		}
		f.sync.close() // what it still holds is not known
		f.sync, f.self = nil, true
		if !errors.Is(err, errNoAIO) {
			return err
		}
	}
	for {
		// fdatasync writes the size too when it changed, which is all that a
		// reader of the file needs.
		err := syscall.Fdatasync(int(f.f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (f *osFile) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *osFile) Written() (time.Time, error) {
	st, err := f.f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}

func (f *osFile) Allocate(off, n int64) error {
	for {
		err := syscall.Fallocate(int(f.f.Fd()), 0, off, n)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// blank is what Fill writes.
var blank [64 << 10]byte

func (f *osFile) Fill(off, n int64) error {
	if !f.fills {
		return nil
	}
	for n > 0 {
		k := min(n, int64(len(blank)))
		if _, err := f.f.WriteAt(blank[:k], off); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}
