package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"gatehouse/internal/problem"
)

const (
	lockName    = "lock"
	nextName    = "next"
	reserveName = "reserve"
)

// Open opens the journal in dir, or starts one. It takes the exclusive lock,
// cuts a torn tail, and refuses any other damage with problem.JournalDamaged.
//
// Everything from the oldest of the newest snapshots on is read and checked,
// all of it when there are no snapshots; of full segments before that only
// header and footer, and whoever reads their records checks them then.
func Open(dir string, o Options) (_ *Journal, err error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	aead, err := newAEAD(o.PrivateKey)
	if err != nil {
		return nil, err
	}
	if err := o.FS.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	lock, err := o.FS.Lock(filepath.Join(dir, lockName))
	if errors.Is(err, ErrLocked) {
		return nil, problem.Wrap(err, problem.JournalLocked, "the journal is in use by another process",
			"Stop the other node, or give this one its own state folder.")
	}
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{
		o: o, dir: dir, aead: aead, lock: lock,
		snapshots: map[string]uint64{},
		committed: make(chan struct{}),
		done:      make(chan struct{}),
	}
	j.work.L, j.room.L = &j.mu, &j.mu
	j.w.j = j
	defer func() {
		if err != nil {
			err = errors.Join(err, j.w.close(), lock.Close())
		}
	}()
	if err := j.recover(); err != nil {
		return nil, err
	}
	if err := j.w.makeReserve(); err != nil {
		if !noSpace(err) {
			return nil, fmt.Errorf("open journal: %w", err)
		}
		j.full = true
	}
	go j.w.run()
	return j, nil
}

// recover reads the folder and leaves j.w ready to write.
func (j *Journal) recover() error {
	if err := j.o.FS.Remove(j.path(nextName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open journal: %w", err)
	}
	names, err := j.o.FS.ReadDir(j.dir)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	var firsts []uint64
	for _, name := range names { // sorted, and so by position
		if first, ok := parseSegmentName(name); ok {
			firsts = append(firsts, first)
		}
	}
	if len(firsts) == 0 {
		rand.Read(j.id[:]) // never fails since Go 1.24
		j.next, j.w.next = 1, 1
		return j.w.start(0)
	}
	at := heading{pos: firsts[0], any: true}
	for _, first := range firsts[:len(firsts)-1] {
		if at, err = j.recoverFull(first, at); err != nil {
			return err
		}
	}
	if at, err = j.recoverLast(firsts[len(firsts)-1], at); err != nil {
		return err
	}
	// A segment's name may be in the cache only: the process that renamed it may
	// have ended before, or at, the sync of the folder.
	if err := j.o.FS.SyncDir(j.dir); err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	maps.DeleteFunc(j.snapshots, func(_ string, pos uint64) bool { return pos < firsts[0] })
	if err := j.checkRecent(); err != nil {
		return err
	}
	j.next, j.w.next, j.w.link = at.pos, at.pos, at.link
	if j.w.f == nil { // the last segment is full
		return j.w.start(at.link)
	}
	return nil
}

// heading is where one segment ends and the next must begin.
type heading struct {
	pos  uint64
	link uint32
	any  bool // nothing is known about link: the first segment that is left
}

// enter opens a segment that must begin at a heading.
func (j *Journal) enter(first uint64, at heading, flag int) (File, segmentHeader, error) {
	path := j.path(segmentName(first))
	if first != at.pos {
		return nil, segmentHeader{}, damaged(path, at.pos, 0, errors.New("a segment is missing before this one"))
	}
	f, h, err := openSegment(j.o.FS, path, first, flag)
	if err != nil {
		return nil, h, err
	}
	if at.any {
		j.id = h.id
	} else if h.id != j.id || h.link != at.link {
		return nil, h, errors.Join(damaged(path, first, 0, errors.New("the segment does not continue the one before")), f.Close())
	}
	return f, h, nil
}

// recoverFull reads header and footer of a segment that is not the last.
func (j *Journal) recoverFull(first uint64, at heading) (heading, error) {
	f, _, err := j.enter(first, at, os.O_RDONLY)
	if err != nil {
		return at, err
	}
	defer f.Close() //nolint:errcheck // read only
	path := j.path(segmentName(first))
	size, err := f.Size()
	if err != nil {
		return at, err
	}
	h, ft, err := readFooter(f, j.id, size)
	if err != nil {
		return at, damaged(path, first, size, err)
	}
	j.segments = append(j.segments, &segment{path: path, first: first, size: size, index: ft.index})
	j.snapshots = ft.snapshots
	return heading{pos: ft.next, link: h.sum}, nil
}

// recoverLast reads the last segment whole and cuts its torn tail.
func (j *Journal) recoverLast(first uint64, at heading) (heading, error) {
	f, h, err := j.enter(first, at, os.O_RDWR)
	if err != nil {
		return at, err
	}
	path := j.path(segmentName(first))
	size, err := f.Size()
	if err != nil {
		return at, errors.Join(err, f.Close())
	}
	seg := &segment{path: path, first: first, size: segmentHeaderSize}
	s := &scanner{f: f, id: j.id, off: segmentHeaderSize, end: size, next: first, link: h.link}
	last, full, err := s.groups(seg, func(r Record) { j.snapshots[r.Subject] = r.Pos })
	if errors.Is(err, errFrameHeader) || errors.Is(err, errFrameBody) {
		torn, judgeErr := s.torn()
		if judgeErr != nil {
			err = judgeErr
		} else if torn {
			err = nil
		}
	}
	if err != nil {
		return at, errors.Join(s.locate(path, err), f.Close())
	}
	seg.size = s.off
	j.segments = append(j.segments, seg)
	if err := settle(f, last, s.off); err != nil {
		return at, errors.Join(fmt.Errorf("open journal: %w", err), f.Close())
	}
	at = heading{pos: s.next, link: s.link}
	if full {
		return at, f.Close()
	}
	j.w.f, j.w.allocated = f, seg.size
	return at, nil
}

// settle cuts everything after the last whole frame and makes what is left
// durable. It writes the last frame once more: after a failed sync the system
// takes its pages for clean, and what the cache shows may not be on the disk.
func settle(f File, last mark, end int64) error {
	if err := f.Truncate(end); err != nil {
		return err
	}
	if last.off > 0 {
		b := make([]byte, end-last.off)
		if _, err := f.ReadAt(b, last.off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := writeAll(f, b, last.off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// groups scans frames to the end of the file. It returns where the last whole
// frame starts and whether it was the footer.
func (s *scanner) groups(seg *segment, snapshot func(Record)) (last mark, full bool, err error) {
	for {
		off, pos := s.off, s.next
		h, body, err := s.frame()
		if errors.Is(err, io.EOF) {
			return last, false, nil
		}
		if err != nil {
			return last, false, err
		}
		last = mark{pos, off}
		if h.footer() {
			if _, err := decodeFooter(h, body); err != nil {
				return last, true, err
			}
			// A crash between the footer's sync and the truncation leaves zeros.
			empty, err := s.zeros(s.off, s.end)
			if err == nil && !empty {
				err = errContent
			}
			return last, true, err
		}
		recs, err := decodeRecords(h, body)
		if err != nil {
			return last, false, err
		}
		seg.note(pos, off)
		for _, r := range recs {
			if r.Kind == KindSnapshot && snapshot != nil {
				snapshot(r)
			}
		}
	}
}

// checkRecent reads the full segments that hold what a start will fold.
func (j *Journal) checkRecent() error {
	oldest := uint64(0)
	for pos := range maps.Values(j.snapshots) {
		if oldest == 0 || pos < oldest {
			oldest = pos
		}
	}
	for i, seg := range j.segments[:len(j.segments)-1] {
		next := j.segments[i+1].first
		if next <= oldest {
			continue
		}
		if err := j.checkFull(seg, next); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) checkFull(seg *segment, next uint64) error {
	f, h, err := openSegment(j.o.FS, seg.path, seg.first, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	s := &scanner{f: f, id: j.id, off: segmentHeaderSize, end: seg.size, next: seg.first, link: h.link}
	_, full, err := s.groups(&segment{path: seg.path}, nil)
	if err == nil && (!full || s.next != next) {
		err = errContent
	}
	if err != nil {
		return s.locate(seg.path, err)
	}
	return nil
}

// locate names the place of a bad frame; other errors stay what they are.
func (s *scanner) locate(path string, err error) error {
	if errors.Is(err, errFrameHeader) || errors.Is(err, errFrameBody) || errors.Is(err, errContent) {
		return damaged(path, s.next, s.off, err)
	}
	return fmt.Errorf("read %s: %w", filepath.Base(path), err)
}
