package journal

import (
	"io"
	"io/fs"
	"time"
)

// FS is the file layer under a journal: the real one by default, a faulty one
// in tests (faultfs). Names are paths as given to Open joined with a file name.
type FS interface {
	// OpenFile opens like os.OpenFile, never through a symbolic link.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// ReadDir lists the names in a folder, sorted.
	ReadDir(name string) ([]string, error)
	// MkdirAll makes a folder and its parents.
	MkdirAll(name string, perm fs.FileMode) error
	// Remove removes a file. A missing file is fs.ErrNotExist.
	Remove(name string) error
	// Rename moves a file over another in the same folder.
	Rename(from, to string) error
	// SyncDir makes creations, removals and renames in a folder durable.
	SyncDir(name string) error
	// Lock takes an exclusive lock that ends with Close or with the process.
	// It does not wait: a lock held elsewhere is ErrLocked.
	Lock(name string) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the data and the size durable (fdatasync). One goroutine at a time
	// may be in it or in Close.
	Sync() error
	// Truncate sets the size.
	Truncate(size int64) error
	// Size returns the size.
	Size() (int64, error)
	// Written returns when the file was last changed.
	Written() (time.Time, error)
	// Allocate makes sure that the file has disk space for [off, off+n) and is
	// at least off+n long; new bytes read as zeros. A file system that cannot
	// allocate returns an error that is errors.ErrUnsupported.
	Allocate(off, n int64) error
	// Fill writes zeros over [off, off+n), for which Allocate got disk space, where
	// a later write there is cheaper to make durable because of it and still
	// cannot meet a full disk. Elsewhere it does nothing.
	Fill(off, n int64) error
}
