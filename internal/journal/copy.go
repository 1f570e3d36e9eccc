package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gatehouse/internal/problem"
)

// Copy writes a journal of everything that is durable when it is called into
// the folder dir, which must not exist, and returns the position of its last
// record (0 for none) and its size. The journal goes on meanwhile. The copy
// opens like this journal would after a crash at that moment; private records
// in it stay sealed with the same node key.
func (j *Journal) Copy(ctx context.Context, dir string) (last uint64, size int64, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, 0, fmt.Errorf("copy journal: %w", err)
	}
	j.mu.Lock()
	segments, last := make([]segment, len(j.segments)), j.next-1
	for i, s := range j.segments {
		segments[i] = *s
	}
	j.mu.Unlock()
	for _, s := range segments {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		if err := s.copy(j.o.FS, filepath.Join(dir, filepath.Base(s.path))); err != nil {
			return 0, 0, fmt.Errorf("copy journal: %w", err)
		}
		size += s.size
	}
	return last, size, syncFolder(dir)
}

// copy copies the durable bytes of a segment, as they were counted: what is
// behind them is being written.
func (s *segment) copy(from FS, to string) error {
	f, _, err := openSegment(from, s.path, s.first, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return problem.Wrap(err, problem.JournalTrimmed, "a segment was trimmed away while it was copied", "Copy again.")
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.NewSectionReader(f, 0, s.size))
	if err == nil && n < s.size {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, out.Sync(), out.Close())
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
