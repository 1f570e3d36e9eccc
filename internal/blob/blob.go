package blob

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gatehouse/internal/problem"
)

const (
	tempPrefix = ".tmp-"
	// DefaultMaxBytes is the largest blob that Put takes: a webhook body is at
	// most 25 MiB.
	DefaultMaxBytes = 64 << 20
)

// Store is a folder of blobs. Its methods are safe for concurrent use, also by
// several processes: names depend only on content.
type Store struct {
	dir string
	max int64
	fs  FS
	mu  sync.Mutex // a blob gets its name, or loses it
}

// Option changes a Store from its defaults.
type Option func(*Store)

// MaxBytes sets the largest blob that Put takes.
func MaxBytes(n int64) Option { return func(s *Store) { s.max = n } }

// Files sets the file layer; tests put a faulty one.
func Files(f FS) Option { return func(s *Store) { s.fs = f } }

// Open opens the store in dir, makes the folder if need be, and removes what a
// crash left half-written.
func Open(dir string, opts ...Option) (*Store, error) {
	s := &Store{dir: dir, max: DefaultMaxBytes, fs: osFS{}}
	for _, o := range opts {
		o(s)
	}
	if err := s.fs.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	names, err := s.fs.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, tempPrefix) {
			continue
		}
		if err := s.fs.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open blobs: %w", err)
		}
	}
	return s, nil
}

// Reader returns a Store for Get alone, on a folder that another Store may be
// writing to: Open would take what that one has half-written for a crash's.
func Reader(dir string) *Store { return &Store{dir: dir, fs: osFS{}} }

// Put stores what r holds and returns its lower hex SHA-256 and its length.
// When it returns without error the blob is durable. Over the limit it returns
// problem.BlobTooLarge and stores nothing. Putting a stored blob again is cheap
// in space and repairs a damaged one.
func (s *Store) Put(r io.Reader) (sha256hex string, n int64, err error) {
	temp := filepath.Join(s.dir, tempPrefix+rand.Text())
	f, err := s.fs.Create(temp)
	if err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	defer func() {
		if err != nil {
			// What cannot be removed now goes at the next Open.
			_ = s.fs.Remove(temp)
		}
	}()
	sum := sha256.New()
	n, err = io.Copy(io.MultiWriter(sum, f), io.LimitReader(r, s.max+1))
	if err == nil && n > s.max {
		err = problem.New(problem.BlobTooLarge, fmt.Sprintf("the blob is over the limit of %d bytes", s.max), "")
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	name := hex.EncodeToString(sum.Sum(nil))
	s.mu.Lock()
	err = s.fs.Rename(temp, filepath.Join(s.dir, name))
	s.mu.Unlock()
	if err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	return name, n, nil
}

// Get opens a blob. Its bytes are checked before Get returns, so that a caller
// never acts on the first half of something wrong: problem.BlobDamaged. A blob
// that is not there is problem.NotFound, wrapping fs.ErrNotExist.
func (s *Store) Get(sha256hex string) (io.ReadCloser, error) {
	if !named(sha256hex) {
		return nil, errName
	}
	f, err := s.fs.Open(filepath.Join(s.dir, sha256hex))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.Wrap(err, problem.NotFound, "there is no blob "+sha256hex, "")
	}
	if err != nil {
		return nil, fmt.Errorf("get blob: %w", err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, errors.Join(fmt.Errorf("get blob: %w", err), f.Close())
	}
	if hex.EncodeToString(sum.Sum(nil)) != sha256hex {
		return nil, errors.Join(problem.New(problem.BlobDamaged, "the blob "+sha256hex+" is damaged",
			"Restore the file from a backup."), f.Close())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("get blob: %w", err), f.Close())
	}
	return f, nil
}

// Old lists the blobs that were last put before t, by name.
func (s *Store) Old(t time.Time) (names []string, err error) {
	all, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	for _, name := range all {
		if !named(name) {
			continue
		}
		written, err := s.fs.Written(filepath.Join(s.dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("age of a blob: %w", err)
		}
		if err == nil && written.Before(t) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Remove removes a blob, unless it was put again since t, by this Store: then
// something that names it may be on its way, and Remove returns false. Only one
// process may remove.
func (s *Store) Remove(sha256hex string, t time.Time) (gone bool, err error) {
	if !named(sha256hex) {
		return false, errName
	}
	path := filepath.Join(s.dir, sha256hex)
	s.mu.Lock()
	defer s.mu.Unlock()
	written, err := s.fs.Written(path)
	if err == nil && !written.Before(t) {
		return false, nil
	}
	if err == nil {
		err = s.fs.Remove(path)
	}
	if err != nil {
		return false, fmt.Errorf("remove blob: %w", err)
	}
	return true, nil
}

var errName = problem.New(problem.BlobNameInvalid, "a blob is named by a lower hex SHA-256", "")

// named reports whether a name is a digest: only such a name becomes a path.
func named(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == sha256.Size && strings.ToLower(name) == name
}
