package blob

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// FS is the file layer under a Store.
type FS interface {
	MkdirAll(name string, perm fs.FileMode) error
	ReadDir(name string) ([]string, error)
	// Create makes a file that must not exist yet.
	Create(name string) (File, error)
	// Open opens for reading, never through a symbolic link.
	Open(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// Written returns when a file was last written.
	Written(name string) (time.Time, error)
	// SyncDir makes renames in a folder durable.
	SyncDir(name string) error
}

// File is an open file. Sync makes data and size durable.
type File interface {
	io.ReadWriteCloser
	io.Seeker
	Sync() error
}

type osFS struct{}

func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) Rename(from, to string) error                 { return os.Rename(from, to) }
func (osFS) Remove(name string) error                     { return os.Remove(name) }

func (osFS) Written(name string) (time.Time, error) {
	st, err := os.Lstat(name)
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
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

func (osFS) Create(name string) (File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
}

func (osFS) Open(name string) (File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
