package journal

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"syscall"

	"gatehouse/internal/problem"
)

const (
	allocateAhead  = 4 << 20 // bytes of disk space taken at a time
	allocateScarce = 4 << 10 // the same when the disk is full and the reserve is given up
	fillAhead      = 1 << 20 // bytes of it written with zeros at a time
)

// writer owns the end of the journal. Only its goroutine touches it after Open.
type writer struct {
	j         *Journal
	f         File   // the segment that is written; its segment is the last of j.segments
	allocated int64  // bytes of f that have disk space
	filled    int64  // bytes of f that were written, with groups or with zeros
	next      uint64 // position of the next record
	link      uint32 // header checksum of the last frame
	reserved  bool   // the reserve is held
}

// run writes batches until the journal is closed.
func (w *writer) run() {
	j := w.j
	defer close(j.done)
	for {
		j.mu.Lock()
		for (len(j.queue) == 0 || !j.queue[0].ready) && !j.probe && !j.closing {
			j.work.Wait()
		}
		probe := j.probe && j.full
		j.probe = false
		var b *batch
		if len(j.queue) > 0 && j.queue[0].ready {
			b = j.queue[0]
			j.queue = j.queue[1:]
		}
		ending := j.closing && b == nil
		j.mu.Unlock()
		if probe {
			w.recoverSpace()
		}
		if b != nil {
			w.commit(b)
			j.mu.Lock()
			j.queued -= b.bytes
			j.room.Broadcast()
			j.mu.Unlock()
			// Whoever is about to append runs first: on a busy node the next sync is
			// then for more of them (64 webhook clients: a fifth less processor time
			// a delivery). On an idle one this returns at once.
			runtime.Gosched()
		}
		if ending {
			return
		}
	}
}

// commit makes one batch durable, or fails the journal, and releases its tickets.
func (w *writer) commit(b *batch) {
	j := w.j
	j.mu.Lock()
	err := j.err
	j.mu.Unlock()
	if err == nil {
		err = w.write(b)
	}
	if err != nil {
		b.err = w.fail(err)
	}
	j.mu.Lock()
	j.keep(b)
	j.mu.Unlock()
	close(b.done)
}

// fail makes an error sticky. Nothing is written after a failed write: what is
// on the disk is not known any more, and a later sync proves nothing about it.
func (w *writer) fail(err error) error {
	j := w.j
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = problem.Wrap(err, problem.JournalFailed, "the journal cannot be written",
			"Check the disk, then restart the node; nothing after the last acknowledged record was confirmed.")
		j.room.Broadcast()
		j.wakeReaders()
	}
	return j.err
}

// write seals, encrypts, writes and syncs a batch as one group.
func (w *writer) write(b *batch) error {
	j := w.j
	group := b.recs
	rest := b.frame[frameHeaderSize:]
	for i := range group {
		r := &group[i]
		r.Pos = w.next + uint64(i)
		if r.Data, rest = firstData(rest); r.Kind == KindPrivate {
			r.Data = inClear(r.Data)
		}
	}
	b.first = w.next
	if j.o.Seal != nil {
		sealed, err := j.o.Seal(group)
		if err != nil {
			return fmt.Errorf("seal group: %w", err)
		}
		n := len(group)
		if group, err = w.added(group, sealed); err != nil {
			return err
		}
		for i := range group[n:] {
			b.frame = appendRecord(b.frame, &group[n+i])
		}
	}
	rest = b.frame[frameHeaderSize:]
	for i := range group {
		kind := Kind(rest[0]) // as it was appended, whatever the hook did to the group
		var data []byte
		if data, rest = firstData(rest); kind == KindPrivate {
			j.hide(&group[i], data)
		}
	}
	size := padded(int64(len(b.frame))) + frameTrailerSize
	if size > maxFrame {
		return fmt.Errorf("group of %d bytes is over the limit", size)
	}
	if seg := w.segment(); seg.size > segmentHeaderSize && seg.size+size > j.o.SegmentBytes {
		if err := w.rotate(seg); err != nil {
			return fmt.Errorf("start a segment: %w", err)
		}
	}
	seg := w.segment()
	h := frameHeader{count: uint32(len(group)), first: w.next, link: w.link}
	b.frame, h = endFrame(b.frame, j.id, h)
	if err := w.put(seg.size, b.frame); err != nil {
		return err
	}
	w.link = h.sum
	w.next += uint64(len(group))

	j.mu.Lock()
	defer j.mu.Unlock()
	seg.note(h.first, seg.size)
	seg.size += h.size()
	j.next = w.next
	for _, r := range group {
		if r.Kind == KindSnapshot {
			j.snapshots[r.Subject] = r.Pos
		}
	}
	j.wakeReaders()
	return nil
}

// added checks what the Seal hook returned: the group, then its own records.
func (w *writer) added(group, sealed []Record) ([]Record, error) {
	n := len(group)
	if len(sealed) < n || len(sealed) > n+8 {
		return nil, fmt.Errorf("seal hook returned %d records for a group of %d", len(sealed), n)
	}
	for i := range sealed[:n] {
		a, b := &group[i], &sealed[i]
		if a.Pos != b.Pos || a.Kind != b.Kind || a.Subject != b.Subject || len(a.Data) != len(b.Data) {
			return nil, errors.New("seal hook changed the group")
		}
	}
	if _, err := w.j.check(sealed[n:]); err != nil && len(sealed) > n {
		return nil, fmt.Errorf("seal hook: %w", err)
	}
	for i := n; i < len(sealed); i++ {
		sealed[i].Pos = w.next + uint64(i)
	}
	return sealed, nil
}

// put writes b at off and makes it durable.
func (w *writer) put(off int64, b []byte) error {
	end := off + int64(len(b))
	if err := w.room(end); err != nil {
		return err
	}
	if err := w.fill(end); err != nil {
		return err
	}
	if err := writeAll(w.f, b, off); err != nil {
		return err
	}
	return w.f.Sync()
}

// fill writes zeros from end on, where the next groups go, when the write up to
// end leaves what was filled before. Space that is allocated and was never written
// costs every sync a change of the file's extents (docs/adr/0008). It reads as
// zeros either way, so a reader and a start see no difference.
func (w *writer) fill(end int64) error {
	if end <= w.filled {
		return nil
	}
	w.filled = end
	if w.allocated == unbounded || end >= w.allocated {
		return nil
	}
	w.filled = min(end+fillAhead, w.allocated)
	return w.f.Fill(end, w.filled-end)
}

func writeAll(f File, b []byte, off int64) error {
	n, err := f.WriteAt(b, off)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// room makes sure that the segment has disk space up to a size, so that a write
// never meets a full disk where the file system can allocate.
func (w *writer) room(size int64) error {
	if size <= w.allocated {
		return nil
	}
	err := w.allocate(roundUp(size-w.allocated, min(allocateAhead, w.j.o.SegmentBytes)))
	if !noSpace(err) {
		return err
	}
	if w.scarce(); size <= w.allocated {
		return nil
	}
	return w.allocate(roundUp(size-w.allocated, allocateScarce))
}

func (w *writer) allocate(n int64) error {
	err := w.f.Allocate(w.allocated, n)
	switch {
	case err == nil:
		w.allocated += n
	case errors.Is(err, errors.ErrUnsupported):
		w.allocated = unbounded
		err = nil
	}
	return err
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// scarce gives up the reserve and closes the journal to ordinary appends.
func (w *writer) scarce() {
	if w.reserved {
		w.reserved = false
		// A reserve that cannot be removed leaves less room, nothing worse.
		_ = w.j.o.FS.Remove(w.j.path(reserveName))
		// What it gives back is anybody's on this disk: take the room for what was
		// accepted already before another writer does.
		_ = w.allocate(roundUp(int64(w.j.o.QueueBytes), allocateScarce))
	}
	w.j.mu.Lock()
	w.j.full = true
	w.j.mu.Unlock()
}

// recoverSpace accepts ordinary appends again if the reserve can be had again.
func (w *writer) recoverSpace() {
	if w.makeReserve() != nil {
		return
	}
	w.j.mu.Lock()
	w.j.full = false
	w.j.mu.Unlock()
}

// makeReserve sets disk space aside.
func (w *writer) makeReserve() error {
	o := &w.j.o
	if o.ReserveBytes < 0 || w.reserved {
		return nil
	}
	path := w.j.path(reserveName)
	f, err := o.FS.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = f.Allocate(0, o.ReserveBytes)
	if errors.Is(err, errors.ErrUnsupported) {
		return f.Close()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, o.FS.Remove(path))
	}
	w.reserved = true
	return nil
}

// segment is the one being written. Only the writer appends to j.segments, and
// Trim never removes the last, so no lock is needed to read the last element
// but the slice header is shared.
func (w *writer) segment() *segment {
	w.j.mu.Lock()
	defer w.j.mu.Unlock()
	return w.j.segments[len(w.j.segments)-1]
}

// start creates the segment for the next record and writes to it from now on.
func (w *writer) start(link uint32) error {
	f, err := w.create(link)
	if err != nil {
		return fmt.Errorf("start a segment: %w", err)
	}
	return w.enter(f, link, nil, 0)
}

// create writes a segment's header to the file next. ENOSPC leaves nothing.
func (w *writer) create(link uint32) (_ File, err error) {
	j := w.j
	path := j.path(nextName)
	f, err := j.o.FS.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), j.o.FS.Remove(path))
		}
	}()
	if err := f.Allocate(0, min(allocateAhead, j.o.SegmentBytes)); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	b := segmentHeader{id: j.id, first: w.next, link: link}.encode()
	if err := writeAll(f, b, 0); err != nil {
		return nil, err
	}
	return f, f.Sync()
}

// enter gives the file next its name and makes it the one that is written. Only
// then do readers see the footer of the segment before, which ends at end.
func (w *writer) enter(f File, link uint32, before *segment, end int64) error {
	j := w.j
	seg := &segment{path: j.path(segmentName(w.next)), first: w.next, size: segmentHeaderSize}
	if err := errors.Join(j.o.FS.Rename(j.path(nextName), seg.path), j.o.FS.SyncDir(j.dir)); err != nil {
		return errors.Join(err, f.Close())
	}
	old := w.f
	w.f, w.link, w.filled = f, link, 0
	if old != nil {
		if err := old.Close(); err != nil {
			return err
		}
	}
	var err error
	if w.allocated, err = f.Size(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if before != nil {
		before.size = end
	}
	j.segments = append(j.segments, seg)
	return nil
}

// rotate ends the segment with a footer and starts the next. On a full disk it
// changes nothing and the segment goes on growing in the reserve.
func (w *writer) rotate(seg *segment) error {
	j := w.j
	j.mu.Lock()
	full := j.full
	ft := footer{next: w.next, snapshots: maps.Clone(j.snapshots), index: slices.Clone(seg.index)}
	j.mu.Unlock()
	if full {
		return nil
	}
	subjects := slices.Sorted(maps.Keys(ft.snapshots))
	frame, h := endFrame(ft.append(beginFrame(nil), subjects), j.id, frameHeader{first: w.next, flags: flagFooter, link: w.link})
	f, err := w.create(h.sum)
	if noSpace(err) {
		w.scarce()
		return nil
	}
	if err != nil {
		return err
	}
	end := seg.size + int64(len(frame))
	if err := w.put(seg.size, frame); err != nil {
		return errors.Join(err, f.Close())
	}
	// The footer is durable: what a crash here leaves is zeros behind it.
	if err := errors.Join(w.f.Truncate(end), w.f.Sync()); err != nil {
		return errors.Join(err, f.Close())
	}
	return w.enter(f, h.sum, seg, end)
}

// close closes the segment file. The reserve stays for the next start, which
// may find the disk full.
func (w *writer) close() error {
	if w.f == nil {
		return nil
	}
	f := w.f
	w.f = nil
	return f.Close()
}
