package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"gatehouse/internal/problem"
)

// Store unpacks images once. It is safe for concurrent use.
type Store struct {
	layouts string // folder of layouts: folders and .tar archives
	dir     string // <digest> is an unpacked image

	mu sync.Mutex // one unpacking at a time
}

// NewStore returns a Store that reads layouts below one folder and keeps root
// file systems in another. Neither has to exist before an image is asked for.
func NewStore(layouts, dir string) *Store { return &Store{layouts: layouts, dir: dir} }

var imageForm = regexp.MustCompile(`^[^@\s]+@(sha256:([0-9a-f]{64}))$`)

// Rootfs returns the folder of an image's root file system, unpacked when it is
// not yet there. image is NAME@sha256:DIGEST; only the digest finds it. An image
// that is in no layout is provider_capability_missing with a hint.
func (s *Store) Rootfs(ctx context.Context, image string) (string, error) {
	m := imageForm.FindStringSubmatch(image)
	if m == nil {
		return "", problem.New(problem.ConfigInvalid, fmt.Sprintf("%q names no image by digest", image), "write IMAGE@sha256:DIGEST")
	}
	digest, at := m[1], filepath.Join(s.dir, m[2])
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(at); err == nil {
		return at, nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	l, manifest, err := s.find(digest)
	if err != nil {
		return "", err
	}
	defer l.close() //nolint:errcheck // read only
	if err := s.unpack(at, l, manifest); err != nil {
		return "", problem.Wrap(err, problem.ProviderCapabilityMissing, "the image "+image+" cannot be unpacked", "save it again into "+s.layouts)
	}
	return at, nil
}

// find looks for the layout that has a digest.
func (s *Store) find(digest string) (*layout, document, error) {
	entries, err := os.ReadDir(s.layouts)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, document{}, fmt.Errorf("couldn't read the image layouts: %w", err)
	}
	var why []string
	for _, e := range entries {
		if !e.IsDir() && !strings.HasSuffix(e.Name(), ".tar") || strings.HasPrefix(e.Name(), ".") {
			continue // a pull that is under way, or was cut short
		}
		l, err := openLayout(filepath.Join(s.layouts, e.Name()))
		if err != nil {
			why = append(why, e.Name()+": "+err.Error())
			continue
		}
		m, err := l.manifest(digest)
		if err == nil {
			return l, m, nil
		}
		_ = l.close()
		if !errors.Is(err, fs.ErrNotExist) {
			why = append(why, e.Name()+": "+err.Error())
		}
	}
	return nil, document{}, problem.New(problem.ProviderCapabilityMissing,
		strings.TrimSuffix("no image layout has "+digest+"; "+strings.Join(why, "; "), "; "),
		"run gatehouse image pull, or save the image as an OCI layout into "+s.layouts+", for example with podman save --format oci-archive")
}

// unpack writes an image beside its place and then moves it there, so that a
// folder with a digest's name is whole.
func (s *Store) unpack(at string, l *layout, m document) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(s.dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	root, err := os.OpenRoot(fresh)
	if err != nil {
		return err
	}
	u := &unpacker{root: root}
	if err := errors.Join(u.layers(l, m), root.Close()); err != nil {
		return err
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	return os.Rename(fresh, at)
}
