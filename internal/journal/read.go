package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"sort"

	"gatehouse/internal/problem"
)

// Groups yields the durable groups from the one that holds position from (0:
// from the oldest) to the end as it is when the loop begins, so that it ends
// under any load. Records are in order, the seal last; the slices are the
// caller's to keep. An error ends the loop: problem.JournalTrimmed when from, or
// what follows, was trimmed away, problem.JournalDamaged when bytes are wrong.
func (j *Journal) Groups(from uint64) iter.Seq2[[]Record, error] {
	return func(yield func([]Record, error) bool) {
		r := j.reader(from)
		defer r.close()
		for end := j.Next(); r.from < end; {
			group, err := r.read()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(group, err) || err != nil {
				return
			}
		}
	}
}

// Follow is Groups that then waits for more. It ends with an error: ctx.Err(),
// problem.JournalClosed, or, after the last durable group of a journal whose
// write failed, problem.JournalFailed.
func (j *Journal) Follow(ctx context.Context, from uint64) iter.Seq2[[]Record, error] {
	return func(yield func([]Record, error) bool) {
		r := j.reader(from)
		defer r.close()
		for {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			// Taken before the read, so that no commit falls between.
			j.mu.Lock()
			committed, ended := j.committed, j.err
			if ended == nil && j.closing && len(j.queue) == 0 {
				select {
				case <-j.done:
					ended = errClosed
				default:
				}
			}
			j.mu.Unlock()
			group, err := r.read()
			switch {
			case err == nil:
				if !yield(group, nil) {
					return
				}
			case !errors.Is(err, io.EOF):
				yield(nil, err)
				return
			case ended != nil:
				yield(nil, ended)
				return
			default:
				select {
				case <-committed:
				case <-ctx.Done():
				}
			}
		}
	}
}

// reader reads durable groups in order. It holds at most one open file.
type reader struct {
	j    *Journal
	from uint64 // groups that end before it are skipped
	seg  *segment
	s    scanner
}

func (j *Journal) reader(from uint64) *reader { return &reader{j: j, from: from} }

func (r *reader) close() {
	if r.seg != nil {
		_ = r.s.f.Close()
		r.seg = nil
	}
}

// read returns the next durable group, or io.EOF when there is none now.
func (r *reader) read() ([]Record, error) {
	for {
		if r.seg == nil {
			if err := r.open(); err != nil {
				return nil, err
			}
		}
		r.j.mu.Lock()
		r.s.end = r.seg.size
		r.j.mu.Unlock()
		h, body, err := r.s.frame()
		switch {
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case err != nil:
			return nil, r.s.locate(r.seg.path, err)
		case h.footer():
			r.close()
			r.from = max(r.from, h.first)
			continue
		case r.s.next <= r.from:
			continue
		}
		group, err := decodeRecords(h, slices.Clone(body))
		if err != nil {
			return nil, r.s.locate(r.seg.path, err)
		}
		for i := range group {
			if group[i].Kind != KindPrivate {
				continue
			}
			if group[i].Data, err = r.j.reveal(group[i]); err != nil {
				return nil, problem.Wrap(err, problem.JournalKey,
					fmt.Sprintf("the private record at position %d does not open", group[i].Pos),
					"Start the node with the node.key that wrote this journal.")
			}
		}
		r.from = r.s.next
		return group, nil
	}
}

// open opens the segment that holds r.from, at the nearest mark before it.
func (r *reader) open() error {
	j := r.j
	j.mu.Lock()
	if r.from == 0 {
		r.from = j.segments[0].first
	}
	if r.from < j.segments[0].first {
		j.mu.Unlock()
		return trimmed(r.from)
	}
	n := sort.Search(len(j.segments), func(i int) bool { return j.segments[i].first > r.from }) - 1
	seg := j.segments[n]
	at := mark{pos: seg.first, off: segmentHeaderSize}
	for _, m := range seg.index {
		if m.pos <= r.from {
			at = m
		}
	}
	end := seg.size
	j.mu.Unlock()

	f, h, err := openSegment(j.o.FS, seg.path, seg.first, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return trimmed(r.from)
	}
	if err != nil {
		return err
	}
	r.seg = seg
	// The window survives segments; its offsets do not.
	r.s = scanner{
		f: f, id: j.id, off: at.off, end: end, next: at.pos,
		link: h.link, anyLink: at.pos != seg.first, win: r.s.win[:0],
	}
	return nil
}

func trimmed(pos uint64) error {
	return problem.New(problem.JournalTrimmed, fmt.Sprintf("position %d is no longer in the journal", pos),
		"Start from a snapshot or from a backup.")
}
